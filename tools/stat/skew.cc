#include "tools/stat/skew.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "monitor/obstacle.h"

namespace whorl::stat {

SkewReport find_skew(const std::vector<Rank>& communicator) {
  struct Arrival {
    std::uint64_t at_ns;
    std::size_t rank; ///< index in `communicator`
  };
  std::map<std::uint32_t, std::vector<Arrival>> arrivals; // by number of the collective
  SkewReport report;
  for (std::size_t i = 0; i < communicator.size(); ++i) {
    const monitor::Snapshot& page = communicator[i].page;
    Skew skew{.rank = page.rank, .pid = communicator[i].pid};
    for (const Rank& other : communicator) {
      const auto at = static_cast<std::size_t>(page.rank); // which that page need not have
      if (at < other.page.waited_ns.size()) skew.waited_for_ns += other.page.waited_ns[at];
    }
    report.ranks.push_back(skew);
    for (const monitor::RecordedOperation& operation : page.operations) {
      if (operation.peer >= 0) continue;
      arrivals[operation.fingerprint.sequence].push_back({operation.began_ns, i});
    }
  }
  for (auto& [sequence, all] : arrivals) {
    if (all.size() != communicator.size() || all.size() < 2) continue;
    ++report.operations;
    std::sort(all.begin(), all.end(),
              [](const Arrival& a, const Arrival& b) { return a.at_ns < b.at_ns; });
    Skew& last = report.ranks[all.back().rank];
    ++last.last;
    last.late_ns += all.back().at_ns - all[all.size() - 2].at_ns;
    for (const Arrival& arrival : all) last.cost_ns += all.back().at_ns - arrival.at_ns;
  }
  std::stable_sort(report.ranks.begin(), report.ranks.end(),
                   [](const Skew& a, const Skew& b) { return a.cost_ns > b.cost_ns; });
  return report;
}

std::string to_skew_table(const std::vector<Rank>& ranks) {
  std::string text;
  for (const auto& communicator : by_communicator(ranks)) {
    const monitor::Snapshot& page = communicator.front().page;
    const SkewReport report = find_skew(communicator);
    text += fmt::format(
        "{}communicator {}{}: {} of {} ranks here, the last {} collectives\n"
        "{:>6} {:>8} {:>10} {:>10} {:>16} {:>18}\n",
        text.empty() ? "" : "\n", monitor::hex(page.job).substr(0, 8),
        page.name.empty() ? "" : fmt::format(" \"{}\"", page.name), communicator.size(),
        page.nranks, report.operations, "rank", "pid", "came last", "late by", "others waited",
        "waited for, ever");
    for (const Skew& skew : report.ranks) {
      text += fmt::format(
          "{:>6} {:>8} {:>10} {:>10} {:>16} {:>18}\n", skew.rank, skew.pid, skew.last,
          skew.last == 0 ? "-"
                         : monitor::duration(skew.late_ns / static_cast<std::uint64_t>(skew.last)),
          monitor::duration(skew.cost_ns), monitor::duration(skew.waited_for_ns));
    }
  }
  return text;
}

} // namespace whorl::stat
