#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "perf/gpu/device.h"

namespace perf::gpu {

/// Memory that holds an operation's data several times, at places that successive operations take
/// in turn, so that none finds its data in the cache.
class Places {
 public:
  /// Makes as many places of `bytes` as exceed the cache four times, at least one, at most
  /// `max_places`, within `memory` bytes.
  Places(std::size_t bytes, std::size_t cache, std::size_t memory, std::size_t max_places)
      : stride_((bytes + 4095) / 4096 * 4096) {
    const std::size_t wanted = 4 * cache / std::max<std::size_t>(stride_, 1) + 1;
    const std::size_t possible = memory / std::max<std::size_t>(stride_, 1);
    count_ = std::min({wanted, possible, max_places});
  }
  /// Returns the number of places; 0 if not even one fits.
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::size_t bytes() const { return count_ * stride_; }
  /// Returns the next place and advances.
  CUdeviceptr take(CUdeviceptr base) { return base + next_++ % count_ * stride_; }
  [[nodiscard]] CUdeviceptr first(CUdeviceptr base) const { return base; }

 private:
  std::size_t stride_, count_ = 0, next_ = 0;
};

/// Returns the number of operations of about `moved` bytes that take `ms` milliseconds, on a guess
/// of the device's speed: at least 3, at most `most`.
inline std::size_t operations_for(double moved, int ms, std::size_t most) {
  const double guess_us = 4 + moved / 2.5e6; // 2.5 TB/s
  return std::clamp<std::size_t>(static_cast<std::size_t>(ms * 1000 / guess_us), 3, most);
}

} // namespace perf::gpu
