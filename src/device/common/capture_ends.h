#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/status.h"

namespace whorl {

/// Last operation of each capture, for operations that must follow it in the same graph, in
/// whichever streams they are. Knows the captures that began last, kCaptures of them. Used by one
/// thread at a time.
class CaptureEnds {
 public:
  static constexpr std::size_t kCaptures = 16; ///< number of captures that are known

  CaptureEnds() = default;
  ~CaptureEnds();
  CaptureEnds(const CaptureEnds&) = delete;
  CaptureEnds& operator=(const CaptureEnds&) = delete;

  /// Returns whether an operation of the capture is known.
  bool has(std::uint64_t capture) const noexcept { return events_.count(capture) != 0; }
  /// Makes a stream of a known capture wait for the last operation of the capture.
  Status follow(CUstream stream, std::uint64_t capture) const;
  /// Notes the end of an operation that has been captured in the stream. The context is the same in
  /// all calls.
  Status record(CUstream stream, std::uint64_t capture);

 private:
  Result<CUevent> event_for(std::uint64_t capture);

  CUcontext context_ = nullptr;
  std::uint64_t context_id_ = 0;
  std::map<std::uint64_t, CUevent> events_; ///< ends of operations, by capture
};

} // namespace whorl
