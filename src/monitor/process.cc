#include "monitor/process.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace whorl::monitor {
namespace {

namespace fs = std::filesystem;

/// Returns the number of a process in its own namespace, as its pages have it.
std::uint32_t own_number(int pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("NSpid:")) continue;
    const std::string inner = line.substr(line.find_last_of(" \t") + 1);
    return static_cast<std::uint32_t>(std::strtoul(inner.c_str(), nullptr, 10));
  }
  return static_cast<std::uint32_t>(pid);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Returns whether the cgroup of a process is frozen, as far as this process sees the group. The
/// kernel shows a frozen process as one that sleeps.
bool is_frozen(int pid) {
  const std::string groups = '\n' + read_file(fmt::format("/proc/{}/cgroup", pid));
  constexpr std::string_view kLine = "\n0::"; // line of cgroups of version 2
  const std::size_t line = groups.find(kLine);
  if (line == std::string::npos) return false;
  const std::size_t path = line + kLine.size();
  const std::string group = groups.substr(path, groups.find('\n', path) - path);
  for (const char* const mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    const std::string events = read_file(mount + group + "/cgroup.events");
    if (events.find("frozen 1") != std::string::npos) return true;
  }
  return false;
}

/// Returns the letter behind the name of the program, which may contain anything.
char state_of(int pid) {
  if (is_frozen(pid)) return ObservedRank::kFrozen;
  const std::string text = read_file(fmt::format("/proc/{}/stat", pid));
  const std::size_t end = text.rfind(')');
  return end != std::string::npos && end + 2 < text.size() ? text[end + 2] : '?';
}

} // namespace

int observe_process(int pid, std::vector<ObservedRank>& out) {
  std::error_code error;
  fs::directory_iterator files(fmt::format("/proc/{}/fd", pid), error);
  if (error) return error.value();
  const std::string wanted = fmt::format("/memfd:{} (deleted)", kPageName);
  for (; files != fs::directory_iterator(); files.increment(error)) {
    if (error) break; // the process has just ended
    std::error_code gone;
    if (fs::read_symlink(files->path(), gone) != wanted || gone) continue;
    Fd fd(::open(files->path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd.valid()) continue;
    auto pages = read_pages(std::move(fd));
    if (!pages.ok()) continue;
    for (Snapshot& page : *pages) {
      // A child made by fork() has inherited the descriptor.
      if (page.process_id != own_number(pid)) continue;
      out.push_back({.pid = pid, .state = state_of(pid), .page = std::move(page)});
    }
  }
  return 0;
}

bool ObservedRank::waits() const noexcept {
  constexpr std::uint64_t kRecentNs = 100'000'000;
  if (!page.wait.under_way || page.phase == Phase::kFailed) return false;
  return stopped() || page.phase == Phase::kCreating ||
         page.taken_ns - std::min(page.taken_ns, page.wait.looked_ns) < kRecentNs;
}

bool ObservedRank::waits_long() const noexcept {
  constexpr std::uint64_t kLongNs = 100'000'000; // waits of milliseconds belong to every program
  return waits() && waited_ns() >= kLongNs && !stopped();
}

const RecordedOperation* ObservedRank::current() const noexcept {
  const auto found = std::find_if(page.operations.begin(), page.operations.end(),
                                  [](const auto& operation) { return operation.under_way; });
  return found == page.operations.end() ? nullptr : &*found;
}

std::string ObservedRank::name() const {
  return fmt::format("rank {} (host {}, pid {})", page.rank, page.host, pid);
}

} // namespace whorl::monitor
