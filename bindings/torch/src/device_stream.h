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

namespace whorl_torch {

// Devices by torch's generic interfaces (c10::Stream, c10::Event, the guard of the device's type),
// so that one source serves every build of torch, also one without CUDA.

/// The device that all of the defined tensors lie on; none: the CPU. Throws a sentence if they lie
/// on several.
std::optional<c10::Device> common_device(const char* operation,
                                         const std::vector<at::Tensor>& outputs,
                                         const std::vector<at::Tensor>& inputs);

/// Why whorl cannot take tensors of this device, as the end of a sentence; empty if it can.
std::string why_not_on(c10::Device device);

class DeviceRun;

/// While this lives, the thread may ask for events and streams although another one captures a
/// graph, which that would spoil otherwise.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  int mode_ = 2; ///< CU_STREAM_CAPTURE_MODE_RELAXED
};

/// A stream of a device that is nobody else's: what waits in it for other ranks keeps up nothing
/// but whorl's operations. torch's pool gives the same stream to several users.
class OwnStream {
 public:
  /// One that is free, or a new one. Any thread. Throws.
  static std::shared_ptr<OwnStream> take(c10::Device device);
  /// Lays it back; it is never destroyed.
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  const c10::Stream& stream() const { return stream_; }
  /// The cudaStream_t.
  void* handle() const { return handle_; }
  /// Whether all that was queued is done. True also where the device cannot tell (any more).
  bool idle() const noexcept;
  /// `next` is about to be queued here. Those before it that are over by now did not fail by what
  /// comes from here on.
  void settle(std::weak_ptr<DeviceRun> next);

 private:
  OwnStream(c10::Stream stream, void* handle) : stream_(stream), handle_(handle) {}
  c10::Stream stream_;
  void* handle_;
  std::mutex mutex_;
  std::deque<std::weak_ptr<DeviceRun>> runs_; ///< that were not over, in order
};

/// The streams of one communicator: one for each device that it has met. Any thread.
class DeviceStreams {
 public:
  std::shared_ptr<OwnStream> on(c10::Device device);
  /// Waits for all that has been queued there.
  void synchronize();
  /// Waits until they are idle; false if they are not by the deadline.
  bool idle_by(std::chrono::steady_clock::time_point deadline);

 private:
  std::mutex mutex_;
  std::map<c10::DeviceIndex, std::shared_ptr<OwnStream>> streams_;
};

} // namespace whorl_torch
