#include "device/ipc/mappings.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"

namespace whorl {
namespace {

/// Header of a message. The number of bytes of each part follows.
struct Header {
  static constexpr std::uint32_t kMagic = 0x4d4d5057; // "WPMM"
  std::uint32_t magic = kMagic;
  std::uint32_t rank = 0;
  std::uint64_t operation = 0;
  std::uint64_t run = 0; ///< id of the run
  std::uint32_t first = 0, parts = 0;
};
static_assert(sizeof(Header) + FdChannel::kMaxFds * sizeof(std::uint64_t) <= FdChannel::kMaxBytes);

} // namespace

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
  const Header header{.rank = static_cast<std::uint32_t>(rank_),
                      .operation = number_,
                      .run = run.memory.id,
                      .first = static_cast<std::uint32_t>(first_),
                      .parts = static_cast<std::uint32_t>(n)};
  body_.resize(sizeof header + n * sizeof(std::uint64_t));
  std::memcpy(body_.data(), &header, sizeof header);
  for (std::size_t i = 0; i < n; ++i) {
    std::memcpy(body_.data() + sizeof header + i * sizeof(std::uint64_t), &parts[i].bytes,
                sizeof(std::uint64_t));
    auto fd = run.physical->descriptor(first_ + i);
    if (!fd.ok()) return fd.status();
    fds_.push_back(*std::move(fd));
  }
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
    const Progress progress = fd_channel_->receive(come_);
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
  ByteReader in(message.body());
  const auto header = in.get<Header>();
  if (!in.ok() || header.magic != Header::kMagic || header.operation != number_) return {};
  const auto run = std::find_if(runs_.begin(), runs_.end(), [&](const Run& one) {
    return one.rank == static_cast<int>(header.rank) && one.memory.id == header.run;
  });
  if (run == runs_.end() || header.first != run->physical.parts().size()) return {};
  const auto failed = [&](Code code, const char* why) {
    return Status::error(code, fmt::format("{}: {}", members_.describe(run->rank), why));
  };
  if (message.cut) {
    return failed(Code::kSystemError,
                  "its descriptors of memory are more than this process may open; raise the limit "
                  "of open files (ulimit -n)");
  }
  if (header.parts != message.fds.size() || header.parts > run->memory.mappings - header.first) {
    return failed(Code::kInternalError, "malformed descriptors of memory");
  }
  for (const Fd& fd : message.fds) {
    const auto bytes = in.get<std::uint64_t>();
    if (!in.ok() || bytes == 0 || bytes > run->memory.allocated - run->physical.bytes()) {
      return failed(Code::kInternalError, "malformed descriptors of memory");
    }
    WHORL_TRY(run->physical.import(fd, bytes));
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
