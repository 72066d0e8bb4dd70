#pragma once

#include <cuda.h>

#include <cstdint>

#include "base/status.h"

namespace whorl {

/// Puts launches on one device that use the same FIFOs and scratch memory in order: each begins
/// when the one before it is over, in whichever streams they are. One that is part of a graph takes
/// its place whenever the graph is launched. Two of one capture are in order as long as no other
/// capture has come between them, or they are in one stream. One thread at a time.
class LaunchOrder {
 public:
  LaunchOrder() = default;
  ~LaunchOrder();
  LaunchOrder(const LaunchOrder&) = delete;
  LaunchOrder& operator=(const LaunchOrder&) = delete;

  /// For the current context, which is current in all other calls. Once.
  Status prepare();
  /// Lets a stream wait for the launch before. `capture`: that of the stream, see capture_of().
  Status enter(CUstream stream, std::uint64_t capture);
  /// The launch is in the stream.
  Status leave(CUstream stream, std::uint64_t capture);
  /// Lets another stream, of the same capture if the last launch has one, wait for that launch.
  Status follow(CUstream stream) const;
  /// Whether some launch was part of a capture.
  bool has_graphs() const noexcept { return capture_ != 0; }
  /// Waits for all launches that are in streams, also by graphs.
  void wait() const noexcept;

 private:
  CUcontext context_ = nullptr;
  CUevent done_ = nullptr;     ///< the end of the last launch that has begun or is to
  CUevent captured_ = nullptr; ///< the end of the last one in a capture, for others in that one
  std::uint64_t capture_ = 0;  ///< that one; 0: none yet
  bool last_captured_ = false; ///< the last leave() was in it
};

} // namespace whorl
