#pragma once

#include <ATen/ATen.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "bindings/torch/src/deadline.h"

namespace whorl_torch {

// Devices by torch's generic interfaces (c10::Stream, c10::Event, the guard of the device's type),
// so that one source serves every build of torch, also one without CUDA.

/// Returns the device that all of the defined tensors are on, nothing for the CPU. Throws a
/// sentence if they are on several.
std::optional<c10::Device> common_device(const char* operation,
                                         const std::vector<at::Tensor>& outputs,
                                         const std::vector<at::Tensor>& inputs);

/// Says why whorl cannot take tensors of this device, as the end of a sentence; empty if it can.
std::string why_not_on(c10::Device device);

class DeviceRun;

/// Time in which the calling thread may ask for events and streams while another thread captures a
/// graph, which such a question would spoil otherwise.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  int mode_ = 2; ///< CU_STREAM_CAPTURE_MODE_RELAXED
};

/// Stream of a device with one user, so that an operation which waits in it for other ranks delays
/// nothing but whorl's operations. torch's pool gives the same stream to several users.
class OwnStream {
 public:
  /// Takes a free stream, or makes one. Any thread. Throws.
  static std::shared_ptr<OwnStream> take(c10::Device device);
  /// Frees the stream for the next user; it is never destroyed.
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  const c10::Stream& stream() const { return stream_; }
  /// Returns the cudaStream_t.
  void* handle() const { return handle_; }
  /// Returns whether all that was queued is done; true also where the device cannot tell (any
  /// more).
  bool idle() const noexcept;
  /// Notes that `next` is about to be queued here, and which operations before it are over by now:
  /// an error that comes later is not theirs.
  void note_queued(std::weak_ptr<DeviceRun> next);

 private:
  OwnStream(c10::Stream stream, void* handle) : stream_(stream), handle_(handle) {}
  c10::Stream stream_;
  void* handle_;
  std::mutex mutex_;
  std::deque<std::weak_ptr<DeviceRun>> runs_; ///< operations that were not over, in order
};

/// Streams of one communicator, one for each device of its operations. Any thread.
class DeviceStreams {
 public:
  std::shared_ptr<OwnStream> on(c10::Device device);
  /// Waits for all that has been queued in the streams.
  void synchronize();
  /// Waits until the streams are idle; returns false if they are not by the deadline.
  bool idle_by(Deadline deadline);

 private:
  std::mutex mutex_;
  std::map<c10::DeviceIndex, std::shared_ptr<OwnStream>> streams_;
};

} // namespace whorl_torch
