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
/// Queued by one thread; what is const may be called by any, once that thread has published it.
class DeviceRun : public std::enable_shared_from_this<DeviceRun> {
 public:
  /// By the thread that issues the operation: it will begin when all is done that this thread's
  /// current stream has now. `tensors` are those that it uses.
  DeviceRun(c10::Device device, std::vector<at::Tensor> tensors);

  /// Queues what `body` queues on the stream that it is given, which is also the current one of
  /// this thread meanwhile. The memory of the tensors is kept until the stream has passed it.
  /// Errors that show up afterwards are `communicator`'s.
  void queue(DeviceStreams& streams, const std::shared_ptr<Communicator>& communicator,
             const std::function<void(void* stream)>& body);

  c10::Device device() const { return device_; }
  /// Whether the caller's stream was being captured into a graph, as far as this torch can tell.
  bool captured() const { return captured_; }
  /// The stream that it was queued in, if it was.
  std::optional<c10::Stream> stream() const;
  /// Whether the device has done it. If it has, and all was well, failure() stays null.
  bool over() const;
  /// Makes the current stream of this thread wait for it; does not wait itself.
  void follow() const;
  /// Waits until it is over; false if it is not by the deadline.
  bool wait_until(std::chrono::steady_clock::time_point deadline) const;
  /// The error of the communicator, which may be that of another operation that was on its way at
  /// the same time; null while there is none, and for good once over() with none.
  std::exception_ptr failure() const;

 private:
  const c10::Device device_;
  const bool captured_;
  std::vector<at::Tensor> tensors_; ///< until it is queued
  c10::Event begin_, end_;
  std::shared_ptr<OwnStream> own_;
  std::weak_ptr<Communicator> communicator_;
  mutable std::atomic<bool> succeeded_{false};
};

/// The point that the current streams of the calling thread have reached, on some devices.
class DevicePoint {
 public:
  explicit DevicePoint(const std::vector<c10::Device>& devices);
  /// Waits until the devices have come there.
  void wait() const;

 private:
  std::vector<c10::Event> events_;
};

} // namespace whorl_torch
