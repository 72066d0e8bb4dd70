#include "tools/stat/processes.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
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

/// Returns the number of a process in its own namespace, as its pages have it.
std::uint32_t own_number(int pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("NSpid:")) continue;
    const auto inner = number(line.substr(line.find_last_of(" \t") + 1));
    if (inner) return static_cast<std::uint32_t>(*inner);
  }
  return static_cast<std::uint32_t>(pid);
}

/// Returns the letter behind the name of the program, which may contain anything.
char state_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t end = text.rfind(')');
  return end != std::string::npos && end + 2 < text.size() ? text[end + 2] : '?';
}

/// Reads the pages of a process. Returns 0, or the errno of why its descriptors cannot be read.
int read_process(int pid, std::vector<Rank>& out) {
  std::error_code error;
  fs::directory_iterator files(fmt::format("/proc/{}/fd", pid), error);
  if (error) return error.value();
  const std::string wanted = fmt::format("/memfd:{} (deleted)", monitor::kPageName);
  for (; files != fs::directory_iterator(); files.increment(error)) {
    if (error) break; // the process has just ended
    std::error_code gone;
    if (fs::read_symlink(files->path(), gone) != wanted || gone) continue;
    Fd fd(::open(files->path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd.valid()) continue;
    auto pages = monitor::read_pages(std::move(fd));
    if (!pages.ok()) continue;
    for (monitor::Snapshot& page : *pages) {
      // A child made by fork() has inherited the descriptor.
      if (page.process_id != own_number(pid)) continue;
      out.push_back({.pid = pid, .state = state_of(pid), .page = std::move(page)});
    }
  }
  return 0;
}

} // namespace

bool Rank::waits() const noexcept {
  constexpr std::uint64_t kRecentNs = 100'000'000;
  if (!page.wait.under_way || page.phase == monitor::Phase::kFailed) return false;
  return stopped() || page.phase == monitor::Phase::kCreating ||
         page.taken_ns - std::min(page.taken_ns, page.wait.looked_ns) < kRecentNs;
}

const monitor::RecordedOperation* Rank::current() const noexcept {
  const auto found = std::find_if(page.operations.begin(), page.operations.end(),
                                  [](const auto& operation) { return operation.under_way; });
  return found == page.operations.end() ? nullptr : &*found;
}

std::string Rank::name() const {
  return fmt::format("rank {} (host {}, pid {})", page.rank, page.host, pid);
}

Result<Found> find_ranks(const std::vector<int>& pids) {
  Found found;
  for (const int pid : pids) {
    const int error = read_process(pid, found.ranks);
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
      const int why = read_process(*pid, found.ranks);
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

std::string duration(std::uint64_t ns) {
  const auto value = static_cast<double>(ns);
  if (value >= 1e9) return fmt::format("{:.1f} s", value * 1e-9);
  if (value >= 1e6) return fmt::format("{:.0f} ms", value * 1e-6);
  return fmt::format("{:.0f} µs", value * 1e-3);
}

} // namespace whorl::stat
