#include "bindings/torch/src/process_liveness.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "bindings/torch/src/errors.h"

namespace whorl_torch {
namespace {

struct Stat {
  char state;
  unsigned long long started;
};

/// Reads the entry of a process in /proc; returns nothing if there is none.
std::optional<Stat> look_up(long process) {
  std::ifstream file(c10::str("/proc/", process, "/stat"));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t name_end = text.rfind(')'); // the name may contain anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  Stat stat{};
  std::string skipped;
  constexpr int kBetween = 18; // the state is field 3, the start field 22
  fields >> stat.state;
  for (int i = 0; i < kBetween; ++i) fields >> skipped;
  fields >> stat.started;
  return fields ? std::optional(stat) : std::nullopt;
}

/// Returns a name of the boot of the kernel and of the namespaces, within which an id stands for
/// one process.
std::string host() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  file >> boot;
  std::array<char, 64> space{};
  const ssize_t length = readlink("/proc/self/ns/pid", space.data(), space.size());
  if (boot.empty() || length <= 0) return {};
  return boot + "/" + std::string(space.data(), static_cast<std::size_t>(length));
}

} // namespace

ProcessLiveness::ProcessLiveness(c10::intrusive_ptr<c10d::Store> store, std::string prefix,
                                 int rank)
    : store_(std::move(store)), prefix_(std::move(prefix)), self_(self()) {
  if (self_.host.empty()) return;
  store_->set(c10::str(prefix_, rank), c10::str(self_.host, " ", self_.id, " ", self_.started));
}

void ProcessLiveness::fall_back_on(std::shared_ptr<ProcessLiveness> other,
                                   std::vector<std::uint64_t> ranks) {
  other_ = std::move(other);
  other_ranks_ = std::move(ranks);
}

ProcessLiveness::Process ProcessLiveness::self() {
  const auto stat = look_up(getpid());
  return stat ? Process{host(), getpid(), stat->started} : Process{};
}

ProcessLiveness::Process ProcessLiveness::parse(const std::string& entry) {
  Process process;
  std::istringstream fields(entry);
  fields >> process.host >> process.id >> process.started;
  return fields ? process : Process{};
}

bool ProcessLiveness::ended(const Process& process) {
  const auto stat = look_up(process.id);
  if (!stat) return kill(static_cast<pid_t>(process.id), 0) != 0 && errno == ESRCH;
  return stat->started != process.started || stat->state == 'Z' || stat->state == 'X';
}

void ProcessLiveness::exchange(whorlComm_t comm, int size) {
  struct ProcessInfo {
    std::array<char, 128> host;
    std::int64_t id;
    std::uint64_t started;
    whorlUniqueId point;
  };
  ProcessInfo mine{};
  self_.host.copy(mine.host.data(), mine.host.size() - 1);
  mine.id = self_.id;
  mine.started = self_.started;
  check(whorlGetMeetingPoint(comm, &mine.point));
  std::vector<ProcessInfo> all(static_cast<std::size_t>(size));
  check(whorlAllGather(&mine, all.data(), sizeof mine, whorlUint8, comm, nullptr), comm);
  const std::lock_guard lock(mutex_);
  for (int rank = 0; rank < size; ++rank) {
    const ProcessInfo& info = all[static_cast<std::size_t>(rank)];
    entries_[rank] = {info.host.data(), static_cast<long>(info.id), info.started};
    points_.push_back(info.point);
  }
}

bool ProcessLiveness::has_ended(int rank) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    auto entry = entries_.find(rank);
    if (entry == entries_.end()) {
      const std::string key = c10::str(prefix_, rank);
      if (self_.host.empty()) return false;
      if (!store_->check({key})) {
        return other_ != nullptr &&
               other_->has_ended(static_cast<int>(other_ranks_.at(static_cast<std::size_t>(rank))));
      }
      entry = entries_.emplace(rank, parse(store_->get_to_str(key))).first;
    }
    const Process& process = entry->second;
    return !self_.host.empty() && process.host == self_.host && process.id > 0 && ended(process);
  } catch (const std::exception&) {
    return false; // the store is gone, which a wait for the store reports
  }
}

} // namespace whorl_torch
