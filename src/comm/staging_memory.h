#pragma once

#include <cstddef>
#include <memory>

#include "base/status.h"

namespace whorl {

/// Host memory that devices copy to and from, and that other ranks of the host can map.
class StagingMemory {
 public:
  /// With a context current.
  static Result<std::unique_ptr<StagingMemory>> make(std::size_t bytes);
  StagingMemory() = default;
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;
  ~StagingMemory();

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool registered_ = false;
};

} // namespace whorl
