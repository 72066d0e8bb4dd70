#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transports/fifo/layout.h"

namespace whorl {

/// Functions that endpoints need from the transport that owns them, off the fast path. Any thread.
class FifoHost {
 public:
  virtual ~FifoHost() = default;
  /// Backs a part of the FIFO to `peer` with memory before its first use. Returns false if there is
  /// none; then the error is set if the part is `needed`.
  virtual bool back(int peer, std::span<std::byte> part, bool needed) noexcept = 0;
  /// Returns whether peers can read and write `memory` in place, and writes its Descriptor::offset
  /// to `*offset`.
  virtual bool locate(std::span<const std::byte> memory, std::uint64_t* offset) noexcept = 0;
  /// Returns the memory that a descriptor of `peer` names, or null if it names none. May enter the
  /// kernel.
  virtual std::byte* resolve(int peer, const Descriptor& descriptor) noexcept = 0;
  /// Sets the error: `peer` wrote invalid data into the shared memory.
  virtual void corrupt(int peer, const char* what) noexcept = 0;
};

} // namespace whorl
