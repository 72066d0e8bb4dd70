#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "bindings/torch/src/communicator.h"
#include "bindings/torch/src/device_run.h"
#include "bindings/torch/src/executor.h"

namespace whorl_torch {

// Sends and receives. Each ordered pair of ranks that exchanges messages has a communicator of two
// ranks, its *channel*, made when both sides first use it:
//
//     rank 0 ──▶ rank 1      an executor of rank 0 sends in order, an executor of rank 1 receives
//     rank 0 ◀── rank 1      another channel, independent of the first
//
// Elements that are on a device at the sender go through a second communicator of the pair, in
// streams, so headers need not wait for devices. Executing such an operation means queueing it.
//
// So a send waits for its own receiver only: two ranks that both send first, rings, and receives
// posted in another order than the messages come do not block each other. A message is a header
// (tag, size, kind of memory) and the elements. The receiver matches a message with the first
// receive posted for its tag; a message without a receive is kept. A receive from any rank is
// posted at all channels and taken by the first channel that has a message. The other ranks may be
// silent for any time, so the thread that waits for a receive keeps its timeout.

/// Receive that has been posted.
struct ReceiveRequest {
  WorkPtr work;
  at::Tensor target;
  at::Tensor dense;                  ///< dense_like() of a target on the CPU
  std::shared_ptr<DeviceRun> device; ///< part on a device; null: the target is on the CPU
  std::int64_t tag;
  bool from_any = false;
  std::atomic<int> channels{1};     ///< number of channels that may still bring a message
  std::atomic<bool> claimed{false}; ///< whether a channel brings it, or a waiter has given up
};

/// Receiving side of a channel.
class ReceiveChannel final : public Executor {
 public:
  /// Makes the channel; the places have rank 1 of 2.
  ReceiveChannel(Communicator::Place place, Communicator::Place device_place, int source,
                 int destination);
  void post(const std::shared_ptr<ReceiveRequest>& request, bool serve);
  void set_timeout(std::chrono::milliseconds timeout) {
    comm_.set_timeout(timeout);
    device_comm_->set_timeout(timeout);
  }
  /// Waits for the devices, up to the deadline; after close().
  void finish_on_devices(Deadline deadline);

 protected:
  bool ready() const override;
  bool outstanding() const override { return delivering_ || ready(); }
  std::vector<Finished> step(Lock& lock) override;
  std::vector<Finished> take_all(const std::exception_ptr& reason) override;
  void cancel_calls() override {
    comm_.interrupt();
    device_comm_->interrupt();
  }

 private:
  struct Message {
    std::int64_t tag;
    at::Tensor bytes;
  };
  std::shared_ptr<ReceiveRequest> claim(std::int64_t tag);
  /// Receives the elements of a message: into the target of `request` if they fit, or else into
  /// memory of the host, which is returned.
  at::Tensor receive_elements(std::uint64_t size, bool from_device,
                              const std::shared_ptr<ReceiveRequest>& request);
  Finished deliver(const std::shared_ptr<ReceiveRequest>& request, const at::Tensor& bytes);
  std::exception_ptr deliver_on_device(const ReceiveRequest& request,
                                       const at::Tensor& bytes) noexcept;
  std::exception_ptr wrong_size(const ReceiveRequest& request, std::uint64_t bytes) const;
  std::vector<Finished> match_unexpected();

  Communicator comm_;
  const std::shared_ptr<Communicator> device_comm_;
  DeviceStreams streams_;
  const int source_, destination_;
  std::deque<std::shared_ptr<ReceiveRequest>> posted_;
  std::deque<Message> unexpected_;
  bool delivering_ = false; ///< whether the step under way has claimed a request
};

inline constexpr int kAnySource = -1;

/// Channels of one process group.
class PointToPoint {
 public:
  /// Makes no channel yet; `place` is the place of the group.
  explicit PointToPoint(Communicator::Place place);

  /// Returns the body of a send, which stays valid while the group is shut down. `run` is its part
  /// on a device, if the tensor is there.
  std::function<void()> sender(const at::Tensor& tensor, int peer, std::int64_t tag,
                               std::shared_ptr<DeviceRun> run);
  void send(const WorkPtr& work, int peer, bool serve);
  /// Posts a receive from `source`, or from any rank if that is kAnySource.
  void receive(std::shared_ptr<ReceiveRequest> request, int source, bool serve);

  void interrupt(const std::exception_ptr& reason);
  void close(Deadline deadline);
  void set_timeout(std::chrono::milliseconds timeout);

 private:
  struct SendChannel {
    std::shared_ptr<Communicator> comm, device_comm;
    std::shared_ptr<DeviceStreams> streams;
    std::shared_ptr<WorkQueue> queue;
  };
  SendChannel& to(int peer);
  std::shared_ptr<ReceiveChannel> from(int peer);
  Communicator::Place channel_place(int source, int destination) const;
  static Communicator::Place for_devices(Communicator::Place place);
  std::vector<std::shared_ptr<Executor>> executors();
  std::chrono::milliseconds timeout();

  Communicator::Place place_;
  std::mutex mutex_; ///< guards the maps, ended_ and place_.timeout
  std::map<int, SendChannel> sends_;
  std::map<int, std::shared_ptr<ReceiveChannel>> receives_;
  std::exception_ptr ended_;
};

} // namespace whorl_torch
