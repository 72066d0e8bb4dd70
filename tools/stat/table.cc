#include "tools/stat/table.h"

#include <fmt/format.h>

#include "monitor/obstacle.h"

namespace whorl::stat {
namespace {

using monitor::Phase;

std::string state(const Rank& rank) {
  if (rank.stopped()) return "stopped";
  if (rank.page.phase == Phase::kFailed) return "failed";
  if (rank.page.phase == Phase::kCreating) return "creating";
  if (rank.waits()) return "waiting";
  return rank.current() != nullptr ? "working" : "idle";
}

} // namespace

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
                        rank.page.begun, monitor::activity(rank));
  }
  return text;
}

} // namespace whorl::stat
