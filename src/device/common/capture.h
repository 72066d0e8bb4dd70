#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "engine/stream.h"

namespace whorl {

/// Capture of streams into a graph.
struct Capture {
  std::uint64_t id = 0;    ///< number that no other capture has; 0: no capture
  CUgraph graph = nullptr; ///< graph as captured so far
};
/// Finds the capture that a stream of `context` belongs to. kCudaError if nothing can be queued in
/// the stream because of a capture: the stream's own capture has been invalidated, or the stream is
/// the default stream and a stream that synchronises with the default stream is captured.
Result<Capture> capture_of(CUstream stream, CUcontext context);

/// Returns kInvalidUsage if a stream of `context` is being captured into a graph, for an operation
/// that a graph cannot repeat.
Status refuse_capture(CUstream stream, CUcontext context);

/// Checks whether an operation can be made in `stream`, which is null if the operation is one for
/// the host. Asks `may_be_captured(context)` only where the stream is being captured.
template <class MayBeCaptured>
Status check_capture(const Stream* stream, MayBeCaptured&& may_be_captured) {
  const auto device = stream != nullptr ? stream->device() : std::nullopt;
  if (!device) return {};
  const auto context = static_cast<CUcontext>(device->context);
  const auto handle = static_cast<CUstream>(device->stream);
  const auto capture = capture_of(handle, context);
  if (!capture.ok() || capture->id == 0) return capture.status();
  return may_be_captured(context) ? Status() : refuse_capture(handle, context);
}

} // namespace whorl
