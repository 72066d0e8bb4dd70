#pragma once

#include <cstddef>
#include <string_view>

#include "base/fingerprint.h"

namespace whorl {

/// Operation that begins, for an observer.
struct ObservedOperation {
  const Fingerprint& fingerprint;
  std::string_view algorithm; ///< name; empty: a transfer, or blocks of different sizes
  std::size_t bytes = 0;      ///< bytes of the larger side; 0: blocks have different sizes
  int peer = -1;              ///< the other rank of a transfer
  bool sends = false;         ///< direction of a transfer
};

/// Listener to the begin and end of the operations of one engine. Called by the thread that drives
/// the engine.
class Observer {
 public:
  virtual ~Observer() = default;
  /// Tells of an operation before its first message. Returns what end() gets; null: no end() is
  /// wanted.
  virtual void* begin(const ObservedOperation& operation) noexcept = 0;
  /// Tells that an operation is complete. Not called for one that fails.
  virtual void end(void* handle) noexcept = 0;
};

} // namespace whorl
