#include "device/ipc/mappings.h"

#include <fmt/core.h>

#include <algorithm>

#include "device/ipc/mapping_message.h"

namespace whorl {

void RunSender::begin(std::uint64_t number) {
  number_ = number;
  runs_.clear();
  fds_.clear();
  error_ = {};
  run_ = first_ = 0;
}

Progress RunSender::step() {
  bool moved = false;
  while (run_ < runs_.size()) {
    if (fds_.empty()) error_ = prepare_message();
    if (!error_.ok()) return Progress::kFailed;
    const Progress sent = fd_channel_->send(body_, fds_);
    if (sent == Progress::kIdle) return moved ? Progress::kAdvanced : Progress::kIdle;
    if (sent == Progress::kFailed) {
      error_ = Status::error(Code::kRemoteError, "the leader does not take descriptors of memory");
      return sent;
    }
    moved = true;
    first_ += fds_.size();
    fds_.clear();
    if (first_ < runs_[run_].physical->parts().size()) continue;
    first_ = 0;
    ++run_;
  }
  return Progress::kDone;
}

Status RunSender::prepare_message() {
  const Run& run = runs_[run_];
  const auto parts = run.physical->parts().subspan(first_);
  const std::size_t n = std::min(parts.size(), FdChannel::kMaxFds);
  MappingMessage message{.rank = static_cast<std::uint32_t>(rank_),
                         .operation = number_,
                         .run = run.memory.id,
                         .first = static_cast<std::uint32_t>(first_)};
  for (std::size_t i = 0; i < n; ++i) {
    message.sizes.push_back(parts[i].bytes);
    auto fd = run.physical->descriptor(first_ + i);
    if (!fd.ok()) return fd.status();
    fds_.push_back(*std::move(fd));
  }
  body_ = message.encode();
  return {};
}

void RunReceiver::begin(std::uint64_t number) {
  number_ = number;
  runs_.clear();
  error_ = {};
}

void RunReceiver::expect(int rank, const gpu::SharedMemory& run) {
  if (run.mappings > gpu::kMaxMappings && error_.ok()) {
    error_ = Status::error(Code::kInternalError, "a malformed description of mapped memory");
  }
  runs_.push_back({rank, run, {}});
}

/// Receives messages, also those of abandoned operations.
Progress RunReceiver::step() {
  if (!error_.ok()) return Progress::kFailed;
  bool moved = false;
  const auto complete = [](const Run& run) { return run.complete(); };
  while (!std::all_of(runs_.begin(), runs_.end(), complete)) {
    const Progress progress =
        fd_channel_ != nullptr ? fd_channel_->receive(come_) : Progress::kFailed;
    if (progress == Progress::kIdle) return moved ? Progress::kAdvanced : Progress::kIdle;
    error_ = progress == Progress::kDone
                 ? accept(come_)
                 : Status::error(Code::kSystemError, "this rank takes no descriptors of memory");
    come_.fds.clear();
    if (!error_.ok()) return Progress::kFailed;
    moved = true;
  }
  return Progress::kDone;
}

/// Discards messages as well, because their descriptors keep memory of the senders alive.
void RunReceiver::abandon() {
  runs_.clear();
  if (fd_channel_ == nullptr) return;
  while (fd_channel_->receive(come_) == Progress::kDone) come_.fds.clear();
}

/// Imports the memory of a message. Ignores messages of abandoned operations.
Status RunReceiver::accept(FdChannel::Message& message) {
  const auto said = MappingMessage::decode(message.body());
  if (!said || said->operation != number_) return {};
  const auto run = std::find_if(runs_.begin(), runs_.end(), [&](const Run& one) {
    return one.rank == static_cast<int>(said->rank) && one.memory.id == said->run;
  });
  if (run == runs_.end() || said->first != run->physical.parts().size()) return {};
  const auto failed = [&](Code code, const char* why) {
    return Status::error(code, fmt::format("{}: {}", members_.describe(run->rank), why));
  };
  if (message.cut) {
    return failed(Code::kSystemError,
                  "its descriptors of memory are more than this process may open; raise the limit "
                  "of open files (ulimit -n)");
  }
  const std::size_t count = said->sizes.size();
  if (count == 0 || count != message.fds.size() || count > run->memory.mappings - said->first) {
    return failed(Code::kInternalError, "malformed descriptors of memory");
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bytes = said->sizes[i];
    if (bytes == 0 || bytes > run->memory.allocated - run->physical.bytes()) {
      return failed(Code::kInternalError, "malformed descriptors of memory");
    }
    WHORL_TRY(run->physical.import(message.fds[i], bytes));
  }
  if (run->complete() && run->physical.bytes() != run->memory.allocated) {
    return failed(Code::kInternalError, "malformed descriptors of memory");
  }
  return {};
}

bool RunReceiver::waits_for(int rank) const noexcept {
  return std::any_of(runs_.begin(), runs_.end(),
                     [&](const Run& run) { return run.rank == rank && !run.complete(); });
}

gpu::PhysicalMemory RunReceiver::take(int rank, const gpu::SharedMemory& run) {
  for (Run& one : runs_) {
    if (one.rank == rank && one.memory.id == run.id) return std::move(one.physical);
  }
  return {};
}

} // namespace whorl
