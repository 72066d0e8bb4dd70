#pragma once

#include <c10/core/Event.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "bindings/torch/src/communicator.h"
#include "bindings/torch/src/device_stream.h"

namespace whorl_torch {

/// An operation on tensors of a device, which takes its place among what the program does there:
///
///     stream of the caller ──●─────────── goes on ──────────────▶ wait() ──●──▶ uses the result
///                            │ begin                                       ▲
///     stream of the group    └──▶ [ copies, whorl's operation ] ──●────────┘      ● event
///                                                                end
///
/// One thread queues the operation; any thread may call const functions once that thread has
/// published the object.
class DeviceRun : public std::enable_shared_from_this<DeviceRun> {
 public:
  /// Marks the place of the operation, which uses `tensors`, in the current stream of the calling
  /// thread: it will begin when all is done that is in that stream now.
  DeviceRun(c10::Device device, std::vector<at::Tensor> tensors);

  /// Calls `body`, which queues the operation on the stream that it gets; that stream is the
  /// current one of the calling thread meanwhile. The memory of the tensors is kept until the
  /// stream has passed the operation. Errors that show up afterwards are `communicator`'s.
  void queue(DeviceStreams& streams, const std::shared_ptr<Communicator>& communicator,
             const std::function<void(void* stream)>& body);

  c10::Device device() const { return device_; }
  /// Returns whether the stream of the issuer was being captured into a graph, as far as this torch
  /// can tell.
  bool captured() const { return captured_; }
  /// Returns the stream in which the operation was queued, if it was.
  std::optional<c10::Stream> stream() const;
  /// Returns whether the device has done the operation. If so, and there was no error, failure()
  /// stays null.
  bool completed() const;
  /// Makes the current stream of this thread wait for the operation; the call itself does not wait.
  void block_current_stream() const;
  /// Waits until the operation is completed; returns false if it is not by the deadline.
  bool wait_until(Deadline deadline) const;
  /// Returns the error of the communicator, which may be that of another operation that was under
  /// way at the same time; null while there is none, and for good once the operation is completed
  /// without one.
  std::exception_ptr failure() const;

 private:
  const c10::Device device_;
  const bool captured_;
  std::vector<at::Tensor> tensors_; ///< tensors whose memory queue() keeps; empty afterwards
  c10::Event begin_, end_;
  std::shared_ptr<OwnStream> own_;
  std::weak_ptr<Communicator> communicator_;
  mutable std::atomic<bool> succeeded_{false};
};

/// Place in the current streams of the calling thread, on some devices.
class DevicePoint {
 public:
  explicit DevicePoint(const std::vector<c10::Device>& devices);
  /// Waits until the devices have reached the place.
  void wait() const;

 private:
  std::vector<c10::Event> events_;
};

} // namespace whorl_torch
