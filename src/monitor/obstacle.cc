#include "monitor/obstacle.h"

#include <fmt/format.h>

#include <algorithm>

namespace whorl::monitor {
namespace {

std::string ago(const ObservedRank& rank, std::uint64_t ns) {
  return duration(rank.page.taken_ns - std::min(rank.page.taken_ns, ns));
}

std::string last(const ObservedRank& rank) {
  if (rank.page.operations.empty()) return "no operation yet";
  const RecordedOperation& operation = rank.page.operations.back();
  if (operation.ended_ns != 0) {
    return fmt::format("no call for {} after {}", ago(rank, operation.ended_ns),
                       describe(operation));
  }
  return fmt::format("no call after {}, which began {} ago", describe(operation),
                     ago(rank, operation.began_ns));
}

/// Returns the rank of the same process that is in an operation of another communicator, or makes
/// one; null if there is none, or the process has several ranks in the communicator of `rank`,
/// whose threads do different things.
const ObservedRank* busy_elsewhere(const ObservedRank& rank,
                                   const std::vector<ObservedRank>& others) {
  const auto here = std::count_if(others.begin(), others.end(), [&](const ObservedRank& other) {
    return other.pid == rank.pid && other.page.job == rank.page.job;
  });
  if (here > 1) return nullptr;
  const auto found = std::find_if(others.begin(), others.end(), [&](const ObservedRank& other) {
    return other.pid == rank.pid && other.page.job != rank.page.job &&
           (other.page.phase == Phase::kCreating ||
            (other.page.phase == Phase::kReady && other.current() != nullptr));
  });
  return found == others.end() ? nullptr : &*found;
}

} // namespace

std::string duration(std::uint64_t ns) {
  const auto value = static_cast<double>(ns);
  if (value >= 1e9) return fmt::format("{:.1f} s", value * 1e-9);
  if (value >= 1e6) return fmt::format("{:.0f} ms", value * 1e-6);
  return fmt::format("{:.0f} µs", value * 1e-3);
}

std::string activity(const ObservedRank& rank) {
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

std::string obstacle(const ObservedRank& rank, const ObservedRank& waiter,
                     const std::vector<ObservedRank>& others) {
  const std::string name = rank.name();
  if (rank.state == ObservedRank::kFrozen) {
    return name +
           " is frozen with its cgroup, as by systemctl freeze or docker pause; thaw or "
           "unpause it";
  }
  if (rank.stopped()) {
    return fmt::format("{} is stopped, by a signal or a debugger; kill -CONT {} lets it go on",
                       name, rank.pid);
  }
  if (rank.page.phase == Phase::kFailed) {
    return fmt::format("{} has failed: {}", name, rank.page.error);
  }
  const RecordedOperation* const current = rank.current();
  if (current == nullptr && rank.waits_long()) return {};
  const RecordedOperation* const awaited = waiter.current();
  const auto is_awaited = [&](const RecordedOperation& operation) {
    return awaited != nullptr && awaited->peer < 0 && operation.peer < 0 &&
           operation.fingerprint.sequence == awaited->fingerprint.sequence;
  };
  if (current == nullptr) {
    const auto& past = rank.page.operations;
    const auto made = std::find_if(past.rbegin(), past.rend(), is_awaited);
    if (made != past.rend() && !(made->fingerprint == awaited->fingerprint)) {
      return fmt::format(
          "{} has made another call, {}; all ranks must make the same calls in the same order",
          name, describe(*made));
    }
    const std::string call =
        made == past.rend() ? "has not made this call" : "has completed this call";
    if (const ObservedRank* const other = busy_elsewhere(rank, others)) {
      return fmt::format("{} {}; its process is busy in communicator {}{}: {}", name, call,
                         hex(other->page.job).substr(0, 8),
                         other->page.name.empty() ? "" : " \"" + other->page.name + "\"",
                         activity(*other));
    }
    return fmt::format("{} {}; {}", name, call, activity(rank));
  }
  if (is_awaited(*current) && !(awaited->fingerprint == current->fingerprint)) {
    return fmt::format(
        "{} is in another operation, {}; all ranks must make the same calls in the "
        "same order",
        name, describe(*current));
  }
  if (rank.waits_long()) return {};
  return fmt::format("{} works on {}", name, activity(rank));
}

} // namespace whorl::monitor
