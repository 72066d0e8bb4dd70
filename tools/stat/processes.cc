#include "tools/stat/processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>

namespace whorl::stat {
namespace {

namespace fs = std::filesystem;

std::optional<int> number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

} // namespace

Result<Found> find_ranks(const std::vector<int>& pids) {
  Found found;
  for (const int pid : pids) {
    const int error = monitor::observe_process(pid, found.ranks);
    if (error == 0) continue;
    return Status::error(
        Code::kInvalidArgument,
        fmt::format("process {} {}", pid,
                    error == EACCES || error == EPERM
                        ? "may not be read: only its user may, and root with the right to trace it"
                        : "does not exist"));
  }
  if (pids.empty()) {
    std::error_code error;
    for (fs::directory_iterator all("/proc", error); all != fs::directory_iterator();
         all.increment(error)) {
      if (error) break;
      const auto pid = number(all->path().filename().string());
      if (!pid) continue;
      const int why = monitor::observe_process(*pid, found.ranks);
      if (why == EACCES || why == EPERM) ++found.unreadable;
    }
  }
  std::sort(found.ranks.begin(), found.ranks.end(), [](const Rank& a, const Rank& b) {
    return std::pair(a.page.job, a.page.rank) < std::pair(b.page.job, b.page.rank);
  });
  return found;
}

std::vector<std::vector<Rank>> by_communicator(std::vector<Rank> ranks) {
  std::vector<std::vector<Rank>> groups;
  for (Rank& rank : ranks) {
    if (groups.empty() || groups.back().front().page.job != rank.page.job) groups.emplace_back();
    groups.back().push_back(std::move(rank));
  }
  return groups;
}

} // namespace whorl::stat
