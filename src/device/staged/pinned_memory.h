#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <span>

#include "base/status.h"

namespace whorl {

/// Host memory that devices copy to and from, and that other ranks of the host can map. What has
/// been registered with the driver stays so for the life of the process, and serves the next that
/// needs memory in the context: to end a registration may wait for all streams of the context, and
/// one of them may wait for the caller. Any thread.
class StagingMemory {
 public:
  /// At least `bytes`, with any contents, at a multiple of a page; `context` is current. Where
  /// nothing fits that has been given back, more is registered, which may wait for streams.
  static Result<std::unique_ptr<StagingMemory>> take(CUcontext context, std::size_t bytes);
  /// Sees to it that `count` times `bytes` have been registered in the context, which is current.
  static Status reserve(CUcontext context, std::size_t count, std::size_t bytes);

  StagingMemory() = default;
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;
  /// Gives it back: no device uses it any more. Needs no context.
  ~StagingMemory();

  std::byte* data() const noexcept { return memory_.data(); }
  std::size_t bytes() const noexcept { return memory_.size(); }

 private:
  friend Result<std::byte*> staging_words(CUcontext context, std::size_t bytes);
  class Pool;
  Pool* pool_ = nullptr;
  std::span<std::byte> memory_;
};

/// Zeroed memory of the same kind for words that streams write or wait for, for the life of the
/// process; at a multiple of 64 bytes, at most 4096 of them. `context` is current.
Result<std::byte*> staging_words(CUcontext context, std::size_t bytes);

} // namespace whorl
