// The mapping of memory between processes, and what the ranks tell each other of it.
#include <fmt/core.h>

#include <utility>

#include "base/log.h"
#include "device/ipc/group.h"
#include "gpu/driver.h"

namespace whorl {

Progress DevicePeers::offer(Operation& operation) {
  const gpu::ContextGuard guard(context_);
  const auto mine = schedules_.offer(context_);
  if (!mine.ok()) {
    log(LogLevel::kInfo,
        fmt::format("{}: no kernels exchange messages between devices: {}",
                    names_[static_cast<std::size_t>(members_.rank)], mine.status().message()));
  }
  board_.offer(members_.rank, mine.ok() ? &*mine : nullptr);
  operation.state = Operation::State::kOffered;
  return Progress::kAdvanced;
}

Progress DevicePeers::look_at_offers(Operation& operation) {
  bool good = true;
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const auto answer = board_.offer_of(rank, offers_[static_cast<std::size_t>(rank)]);
    if (answer == SharedState::Answer::kNone) return Progress::kIdle;
    good = good && answer == SharedState::Answer::kYes;
  }
  if (!good) { // which all ranks see
    facts_.schedules = false;
    return end(operation, false);
  }
  const gpu::ContextGuard guard(context_);
  return answer(operation, schedules_.open(offers_, posts_));
}

/// Maps the buffers of all ranks, as the leader.
Progress DevicePeers::lead(Operation& operation, std::uint64_t timeout_ns) {
  const Progress progress = leader_->map(posts_);
  if (progress != Progress::kDone && progress != Progress::kFailed) return progress;
  const bool mapped = progress == Progress::kDone;
  answer(operation, mapped ? Status() : leader_->error());
  return conclude(operation, mapped, timeout_ns);
}

/// Hands over what the leader asks for, until the leader answers.
Progress DevicePeers::follow(Operation& operation, std::uint64_t timeout_ns) {
  const auto mapped = board_.answer(kDeviceLeader, operation.number);
  if (mapped != SharedState::Answer::kNone) {
    buffers_.end_operation();
    return conclude(operation, mapped == SharedState::Answer::kYes, timeout_ns);
  }
  if (operation.state == Operation::State::kAnswered) return Progress::kIdle;
  const Progress progress = buffers_.hand_over(operation.number, operation.post, context_);
  if (progress == Progress::kDone) return answer(operation, {});
  if (progress == Progress::kFailed) return answer(operation, buffers_.error());
  return progress;
}

/// Publishes whether this rank has done its part in the mapping of memory.
Progress DevicePeers::answer(Operation& operation, const Status& mapped) {
  if (!mapped.ok()) {
    log(std::exchange(warned_, true) ? LogLevel::kInfo : LogLevel::kWarn,
        fmt::format("{}: the host carries out {}, because memory of another process could not be "
                    "mapped: {}",
                    names_[static_cast<std::size_t>(members_.rank)], describe(operation.request),
                    mapped.message()));
  }
  board_.answer(members_.rank, operation.number, mapped.ok());
  operation.state = Operation::State::kAnswered;
  return Progress::kAdvanced;
}

Progress DevicePeers::look_at_answers(Operation& operation, std::uint64_t timeout_ns) {
  bool good = true;
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const auto answer = board_.answer(rank, operation.number);
    if (answer == SharedState::Answer::kNone) return Progress::kIdle;
    good = good && answer == SharedState::Answer::kYes;
  }
  return conclude(operation, good, timeout_ns);
}

/// Queues an operation, or leaves it to the host, once all ranks know whether its memory is mapped.
Progress DevicePeers::conclude(const Operation& operation, bool mapped, std::uint64_t timeout_ns) {
  const bool schedule = operation.path == DevicePath::kSchedule;
  if (!mapped) {
    if (schedule && ++refusals_ == kMaxRefusals) facts_.schedules = false;
    return leave_to_host(operation, "memory of another process could not be mapped");
  }
  schedules_open_ = schedules_open_ || schedule;
  return queue(operation, timeout_ns);
}

} // namespace whorl
