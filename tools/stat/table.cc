#include "tools/stat/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace whorl::stat {
namespace {

using monitor::Phase;
using monitor::RecordedOperation;

std::string ago(const Rank& rank, std::uint64_t ns) {
  return duration(rank.page.taken_ns - std::min(rank.page.taken_ns, ns));
}

std::string state(const Rank& rank) {
  if (rank.stopped()) return "stopped";
  if (rank.page.phase == Phase::kFailed) return "failed";
  if (rank.page.phase == Phase::kCreating) return "creating";
  if (rank.waits()) return "waiting";
  return rank.current() != nullptr ? "working" : "idle";
}

std::string last(const Rank& rank) {
  if (rank.page.operations.empty()) return "no operation yet";
  const RecordedOperation& operation = rank.page.operations.back();
  if (operation.ended_ns != 0) {
    return fmt::format("no call for {} after {}", ago(rank, operation.ended_ns),
                       describe(operation));
  }
  return fmt::format("no call after {}, which began {} ago", describe(operation),
                     ago(rank, operation.began_ns));
}

} // namespace

std::string activity(const Rank& rank) {
  if (rank.page.phase == Phase::kFailed) return rank.page.error;
  if (rank.page.phase == Phase::kCreating) {
    return fmt::format("{}, for {}", rank.page.wait.text, duration(rank.waited_ns()));
  }
  const RecordedOperation* const current = rank.current();
  if (current == nullptr && rank.waits()) { // behind many transfers of one group
    return fmt::format("an operation that is no longer remembered: {} for {}", rank.page.wait.text,
                       duration(rank.waited_ns()));
  }
  if (current == nullptr) return last(rank);
  const auto under_way =
      std::count_if(rank.page.operations.begin(), rank.page.operations.end(),
                    [](const RecordedOperation& operation) { return operation.under_way; });
  std::string text = describe(*current);
  if (under_way > 1) text += fmt::format(" and {} more", under_way - 1);
  if (!rank.waits()) return fmt::format("{}, for {}", text, ago(rank, current->began_ns));
  return fmt::format("{}: {} for {}", text, rank.page.wait.text, duration(rank.waited_ns()));
}

std::string to_table(const std::vector<Rank>& ranks) {
  std::string text;
  const decltype(Identity::job)* job = nullptr;
  for (const Rank& rank : ranks) {
    if (job == nullptr || *job != rank.page.job) {
      job = &rank.page.job;
      text += fmt::format("{}communicator {}{} of {} ranks\n{:>6} {:>8} {:<8} {:>10}  {}\n",
                          text.empty() ? "" : "\n", monitor::hex(*job).substr(0, 8),
                          rank.page.name.empty() ? "" : fmt::format(" \"{}\"", rank.page.name),
                          rank.page.nranks, "rank", "pid", "state", "operations", "now");
    }
    text += fmt::format("{:>6} {:>8} {:<8} {:>10}  {}\n", rank.page.rank, rank.pid, state(rank),
                        rank.page.begun, activity(rank));
  }
  return text;
}

} // namespace whorl::stat
