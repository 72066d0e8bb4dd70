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

/// Sends and receives. Each ordered pair of ranks that talks has a communicator of two, its
/// *channel*, made when both sides first use it:
///
///     rank 0 ──▶ rank 1      sends of 0 to 1 in order, carried out by 0's executor of that
///     channel, rank 0 ◀── rank 1      received by 1's; the other direction is independent of it
///
/// Elements that are on a device at the sender's go through a second communicator of the two, in
/// streams; so headers need not wait for devices. Executing such an operation is queueing it.
///
/// So a send waits for its own receiver only: two ranks that both send first, rings, and receives
/// posted in another order than the messages come do not block each other. A message is a header
/// (tag, size, kind of memory) and the elements. The receiver matches it with the first receive
/// posted for its tag; one that nobody has posted is kept. A receive from any rank is posted at all
/// channels and taken by the first that has a message. The others may stay silent for any time, so
/// the timeout of a receive is kept by whoever waits for it.
struct ReceiveRequest {
  WorkPtr work;
  at::Tensor target;
  at::Tensor dense;                  ///< dense_like(target) on the CPU
  std::shared_ptr<DeviceRun> device; ///< null: the target is on the CPU
  std::int64_t tag;
  bool from_any = false;
  std::atomic<int> channels{1};     ///< that may still bring it
  std::atomic<bool> claimed{false}; ///< by the channel that brings it, or by who gives it up
};

class ReceiveChannel final : public Executor {
 public:
  /// The places have rank 1 of 2.
  ReceiveChannel(Communicator::Place place, Communicator::Place device_place, int source,
                 int destination);
  void post(const std::shared_ptr<ReceiveRequest>& request, bool serve);
  void set_timeout(std::chrono::milliseconds timeout) {
    comm_.set_timeout(timeout);
    device_comm_->set_timeout(timeout);
  }
  /// After close(): waits for the device, up to the deadline.
  void finish_on_devices(Deadline deadline);

 protected:
  bool ready() const override;
  bool outstanding() const override { return delivering_ || ready(); }
  std::vector<Finished> step(Lock& lock) override;
  std::vector<Finished> take_all(const std::exception_ptr& reason) override;
  void cut_short() override {
    comm_.interrupt();
    device_comm_->interrupt();
  }

 private:
  struct Message {
    std::int64_t tag;
    at::Tensor bytes;
  };
  std::shared_ptr<ReceiveRequest> claim(std::int64_t tag);
  /// Receives the elements of a message: into the target of a request that they fit, or else into
  /// the memory of the host that is returned.
  at::Tensor take_in(std::uint64_t size, bool from_device,
                     const std::shared_ptr<ReceiveRequest>& request);
  Finished deliver(const std::shared_ptr<ReceiveRequest>& request, const at::Tensor& bytes);
  std::exception_ptr deliver_on_device(const ReceiveRequest& request,
                                       const at::Tensor& bytes) noexcept;
  std::exception_ptr wrong_size(const ReceiveRequest& request, std::uint64_t bytes) const;
  std::vector<Finished> match_kept();
  std::vector<Finished> fail_all(const std::exception_ptr& reason);

  Communicator comm_;
  const std::shared_ptr<Communicator> device_comm_;
  DeviceStreams streams_;
  const int source_, destination_;
  std::deque<std::shared_ptr<ReceiveRequest>> posted_;
  std::deque<Message> kept_;
  bool delivering_ = false; ///< the step under way has claimed a request
};

inline constexpr int kAnySource = -1;

/// All channels of one process group.
class PointToPoint {
 public:
  /// `place` is that of the group; `ended` tells that the group has been ended.
  explicit PointToPoint(Communicator::Place place);

  /// What a send does when it is carried out; it goes on to do so while the group is shut down.
  /// `run`: its part on a device, if the tensor is there.
  std::function<void()> sender(const at::Tensor& tensor, int peer, std::int64_t tag,
                               std::shared_ptr<DeviceRun> run);
  void send(const WorkPtr& work, int peer, bool serve);
  /// `source` kAnySource: any.
  void receive(std::shared_ptr<ReceiveRequest> request, int source, bool serve);

  void interrupt(const std::exception_ptr& reason);
  void close(std::chrono::milliseconds patience);
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
  std::mutex mutex_; ///< of the maps and of place_.timeout
  std::map<int, SendChannel> sends_;
  std::map<int, std::shared_ptr<ReceiveChannel>> receives_;
  std::exception_ptr ended_;
};

} // namespace whorl_torch
