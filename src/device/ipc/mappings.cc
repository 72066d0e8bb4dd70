#include "device/ipc/mappings.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"

namespace whorl {

/// Header of a message. The number of bytes of each part follows.
struct DeviceMappings::Header {
  static constexpr std::uint32_t kMagic = 0x4d4d5057; // "WPMM"
  std::uint32_t magic = kMagic;
  std::uint32_t rank = 0;
  std::uint64_t operation = 0;
  std::uint64_t run = 0; ///< id of the run
  std::uint32_t first = 0, parts = 0;
};

DeviceMappings::DeviceMappings(const Membership& members, FdChannel* fd_channel)
    : members_(members), fd_channel_(fd_channel) {
  static_assert(sizeof(Header) + FdChannel::kMaxFds * sizeof(std::uint64_t) <=
                FdChannel::kMaxBytes);
  for (int rank = 0; rank < members.nranks; ++rank) {
    if (!members.same_process(rank, members.rank)) peers_.push_back(rank);
  }
  possible_ = fd_channel != nullptr && fd_channel->receives() &&
              std::all_of(peers_.begin(), peers_.end(),
                          [&](int peer) { return fd_channel->reaches(peer); });
}

void DeviceMappings::clear() {
  own_.clear();
  others_.clear();
  fds_.clear();
  to_.clear();
  error_ = {};
  run_ = first_ = 0;
}

void DeviceMappings::begin(std::uint64_t number) {
  clear();
  number_ = number;
}

void DeviceMappings::give(const gpu::SharedMemory& run, Result<gpu::PhysicalMemory> physical) {
  if (physical.ok()) {
    own_.push_back({members_.rank, run, *std::move(physical)});
  } else if (error_.ok()) {
    error_ = physical.status();
  }
}

void DeviceMappings::expect(int rank, const gpu::SharedMemory& run) {
  if (run.mappings > gpu::kMaxMappings && error_.ok()) {
    error_ = Status::error(Code::kInternalError, "a malformed description of mapped memory");
  }
  others_.push_back({rank, run, {}});
}

Progress DeviceMappings::step() {
  if (!error_.ok()) return Progress::kFailed;
  if (own_.empty() && others_.empty()) return Progress::kDone;
  const Progress sent = send();
  if (sent == Progress::kFailed) return sent;
  const Progress received = receive();
  if (received == Progress::kFailed || sent == received) return received;
  const bool moved = sent == Progress::kAdvanced || received == Progress::kAdvanced;
  return moved ? Progress::kAdvanced : Progress::kIdle;
}

/// Sends to all peers. kDone: all of own_ has been sent.
Progress DeviceMappings::send() {
  bool moved = false;
  while (run_ < own_.size()) {
    if (fds_.empty()) {
      error_ = prepare_message();
      if (!error_.ok()) return Progress::kFailed;
    }
    const std::size_t before = to_.size();
    std::erase_if(to_, [&](int rank) {
      const Progress progress = fd_channel_->send(rank, body_, fds_);
      if (progress == Progress::kFailed && error_.ok()) {
        error_ = Status::error(Code::kRemoteError,
                               members_.describe(rank) + " does not take descriptors of memory");
      }
      return progress == Progress::kDone;
    });
    if (!error_.ok()) return Progress::kFailed;
    moved = moved || to_.size() < before;
    if (!to_.empty()) return moved ? Progress::kAdvanced : Progress::kIdle;
    first_ += fds_.size();
    fds_.clear();
    if (first_ < own_[run_].physical.parts().size()) continue;
    first_ = 0;
    ++run_;
  }
  return Progress::kDone;
}

Status DeviceMappings::prepare_message() {
  const Run& run = own_[run_];
  const auto parts = run.physical.parts().subspan(first_);
  const std::size_t n = std::min(parts.size(), FdChannel::kMaxFds);
  const Header header{.rank = static_cast<std::uint32_t>(members_.rank),
                      .operation = number_,
                      .run = run.memory.id,
                      .first = static_cast<std::uint32_t>(first_),
                      .parts = static_cast<std::uint32_t>(n)};
  body_.resize(sizeof header + n * sizeof(std::uint64_t));
  std::memcpy(body_.data(), &header, sizeof header);
  for (std::size_t i = 0; i < n; ++i) {
    std::memcpy(body_.data() + sizeof header + i * sizeof(std::uint64_t), &parts[i].bytes,
                sizeof(std::uint64_t));
    auto fd = run.physical.descriptor(first_ + i);
    if (!fd.ok()) return fd.status();
    fds_.push_back(*std::move(fd));
  }
  to_ = peers_;
  return {};
}

/// Receives messages, also those of abandoned operations. kDone: others_ are complete.
Progress DeviceMappings::receive() {
  bool moved = false;
  while (true) {
    const Progress progress = fd_channel_->receive(come_);
    if (progress == Progress::kIdle) break;
    error_ = progress == Progress::kDone
                 ? accept(come_)
                 : Status::error(Code::kSystemError, "this rank takes no descriptors of memory");
    come_.fds.clear();
    if (!error_.ok()) return Progress::kFailed;
    moved = true;
  }
  if (std::all_of(others_.begin(), others_.end(), [](const Run& run) { return run.complete(); })) {
    return Progress::kDone;
  }
  return moved ? Progress::kAdvanced : Progress::kIdle;
}

/// Discards messages as well, because their descriptors keep memory of the senders alive.
void DeviceMappings::abandon() {
  clear();
  while (possible_ && fd_channel_->receive(come_) == Progress::kDone) come_.fds.clear();
}

/// Imports the memory of a message. Ignores messages of abandoned operations.
Status DeviceMappings::accept(FdChannel::Message& message) {
  ByteReader in(message.body());
  const auto header = in.get<Header>();
  if (!in.ok() || header.magic != Header::kMagic || header.operation != number_) return {};
  const auto run = std::find_if(others_.begin(), others_.end(), [&](const Run& one) {
    return one.rank == static_cast<int>(header.rank) && one.memory.id == header.run;
  });
  if (run == others_.end() || header.first != run->physical.parts().size()) return {};
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

bool DeviceMappings::waits_for(int rank) const noexcept {
  return std::find(to_.begin(), to_.end(), rank) != to_.end() ||
         std::any_of(others_.begin(), others_.end(),
                     [&](const Run& run) { return run.rank == rank && !run.complete(); });
}

gpu::PhysicalMemory DeviceMappings::take(int rank, const gpu::SharedMemory& run) {
  for (std::vector<Run>* const runs : {&own_, &others_}) {
    for (Run& one : *runs) {
      if (one.rank == rank && one.memory.id == run.id) return std::move(one.physical);
    }
  }
  return {};
}

} // namespace whorl
