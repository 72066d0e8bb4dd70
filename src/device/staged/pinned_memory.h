#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <span>

#include "base/status.h"

namespace whorl {

/// Host memory that devices copy to and from, and that other ranks of the host can map. Memory
/// stays registered with the driver for the life of the process and is reused in its context,
/// because ending a registration may wait for all streams of the context, one of which may wait for
/// the caller. Any thread.
class StagingMemory {
 public:
  /// Takes at least `bytes` of uninitialised memory, page-aligned; `context` is current. If no free
  /// memory fits, more is registered, which may wait for streams.
  static Result<std::unique_ptr<StagingMemory>> take(CUcontext context, std::size_t bytes);
  /// Registers memory until `count` buffers of `bytes` exist in the context, which is current.
  static Status reserve(CUcontext context, std::size_t count, std::size_t bytes);

  StagingMemory() = default;
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;
  /// Returns the memory to the pool; no device may use it any more. Needs no context.
  ~StagingMemory();

  std::byte* data() const noexcept { return memory_.data(); }
  std::size_t bytes() const noexcept { return memory_.size(); }

 private:
  friend class StagingWords;
  class Pool;
  Pool* pool_ = nullptr;
  std::span<std::byte> memory_;
};

/// Memory of the same kind for words that streams write or wait for. Any thread.
class StagingWords {
 public:
  static constexpr std::size_t kBytes = 256;

  /// Takes kBytes of zeroed memory, aligned to 64; `context` is current. If none is free, more is
  /// registered.
  static Result<std::unique_ptr<StagingWords>> take(CUcontext context);

  StagingWords() = default;
  StagingWords(const StagingWords&) = delete;
  StagingWords& operator=(const StagingWords&) = delete;
  /// Returns the memory to the pool; no device may use it any more. Needs no context.
  ~StagingWords();

  std::byte* data() const noexcept { return memory_; }

 private:
  StagingMemory::Pool* pool_ = nullptr;
  std::byte* memory_ = nullptr;
};

} // namespace whorl
