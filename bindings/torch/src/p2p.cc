#include "bindings/torch/src/p2p.h"

#include <algorithm>

#include "bindings/torch/src/errors.h"
#include "bindings/torch/src/p2p_message.h"
#include "bindings/torch/src/types.h"

namespace whorl_torch {
namespace {

void transmit(Communicator& comm, const MessageHeader& header) {
  whorlComm_t handle = comm.get();
  check(whorlSend(&header, sizeof header, whorlUint8, kReceiver, handle, nullptr), handle);
}

void transmit(Communicator& comm, const at::Tensor& tensor, std::int64_t tag) {
  const at::Tensor dense = dense_copy(tensor);
  const MessageHeader header{tag, dense.nbytes(), 0};
  transmit(comm, header);
  whorlComm_t handle = comm.get();
  if (header.bytes > 0) {
    check(whorlSend(dense.data_ptr(), header.bytes, whorlUint8, kReceiver, handle, nullptr),
          handle);
  }
}

/// Queues the send of the elements behind the work of the device that `run` waits for.
void queue(DeviceRun& run, DeviceStreams& streams, const std::shared_ptr<Communicator>& comm,
           const at::Tensor& tensor) {
  whorlComm_t handle = tensor.numel() > 0 ? comm->get() : nullptr;
  run.queue(streams, comm, [&](void* stream) {
    if (handle == nullptr) return;
    const at::Tensor dense = dense_copy(tensor);
    check(whorlSend(dense.data_ptr(), dense.nbytes(), whorlUint8, kReceiver, handle, stream),
          handle);
  });
}

} // namespace

PointToPoint::PointToPoint(Communicator::Place place) : place_(std::move(place)) {}

Communicator::Place PointToPoint::channel_place(int source, int destination) const {
  Communicator::Place place = place_;
  place.prefix = c10::str(place_.prefix, "p2p/", source, "-", destination, "/");
  place.name = c10::str("channel ", source, "->", destination, " of ", place_.name);
  place.size = 2;
  place.ranks = {source, destination};
  place.rank = place_.rank == source ? kSender : kReceiver;
  place.host = source;
  return place;
}

Communicator::Place PointToPoint::for_devices(Communicator::Place place) {
  place.prefix += "device/";
  place.name = "device memory in " + place.name;
  return place;
}

PointToPoint::SendChannel& PointToPoint::to(int peer) {
  const std::lock_guard lock(mutex_);
  if (ended_) std::rethrow_exception(ended_);
  SendChannel& channel = sends_[peer];
  if (channel.comm == nullptr) {
    const Communicator::Place place = channel_place(place_.rank, peer);
    channel.comm = std::make_shared<Communicator>(place);
    channel.device_comm = std::make_shared<Communicator>(for_devices(place));
    channel.streams = std::make_shared<DeviceStreams>();
    channel.queue =
        std::make_shared<WorkQueue>([comm = channel.comm, device_comm = channel.device_comm] {
          comm->interrupt();
          device_comm->interrupt();
        });
  }
  return channel;
}

std::shared_ptr<ReceiveChannel> PointToPoint::from(int peer) {
  const std::lock_guard lock(mutex_);
  if (ended_) std::rethrow_exception(ended_);
  std::shared_ptr<ReceiveChannel>& channel = receives_[peer];
  if (channel == nullptr) {
    const Communicator::Place place = channel_place(peer, place_.rank);
    channel = std::make_shared<ReceiveChannel>(place, for_devices(place), peer, place_.rank);
  }
  return channel;
}

std::function<void()> PointToPoint::sender(const at::Tensor& tensor, int peer, std::int64_t tag,
                                           std::shared_ptr<DeviceRun> run) {
  const SendChannel& channel = to(peer);
  return [comm = channel.comm, device_comm = channel.device_comm, streams = channel.streams, tensor,
          tag, run, rank = place_.rank, peer] {
    try {
      if (run == nullptr) return transmit(*comm, tensor, tag);
      transmit(*comm, MessageHeader{tag, tensor.nbytes(), 1});
      queue(*run, *streams, device_comm, tensor);
    } catch (...) {
      std::rethrow_exception(with_ranks(rank, peer));
    }
  };
}

void PointToPoint::send(const WorkPtr& work, int peer, bool serve) {
  to(peer).queue->push(work, serve);
}

void PointToPoint::receive(std::shared_ptr<ReceiveRequest> request, int source, bool serve) {
  const std::chrono::milliseconds grace = timeout();
  // A shared pointer would keep the work alive by itself. The request lives as long as it is
  // posted.
  request->work->set_grace(
      grace, [weak = std::weak_ptr(request), source, grace, rank = place_.rank] {
        const auto overdue = weak.lock();
        if (overdue == nullptr || overdue->claimed.exchange(true)) return; // a message has come
        overdue->work->complete(backend_error(
            "whorl: rank ", rank, " received nothing with tag ", overdue->tag, " from ",
            source == kAnySource ? std::string("any rank") : c10::str("rank ", source), " within ",
            grace.count(), " ms"));
      });
  if (source != kAnySource) {
    const auto channel = from(source);
    request->work->set_executor(channel);
    return channel->post(request, serve);
  }
  request->from_any = true;
  request->channels = place_.size - 1;
  for (int peer = 0; peer < place_.size; ++peer) {
    if (peer != place_.rank) from(peer)->post(request, true);
  }
}

std::chrono::milliseconds PointToPoint::timeout() {
  const std::lock_guard lock(mutex_);
  return place_.timeout;
}

std::vector<std::shared_ptr<Executor>> PointToPoint::executors() {
  std::vector<std::shared_ptr<Executor>> all;
  for (auto& [peer, channel] : sends_) all.push_back(channel.queue);
  for (auto& [peer, channel] : receives_) all.push_back(channel);
  return all;
}

void PointToPoint::interrupt(const std::exception_ptr& reason) {
  std::vector<std::shared_ptr<Executor>> all;
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) ended_ = reason;
    all = executors();
  }
  for (const auto& executor : all) executor->interrupt(reason);
}

void PointToPoint::close(Deadline deadline) {
  std::vector<std::shared_ptr<Executor>> all;
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) ended_ = shut_down_error();
    all = executors();
  }
  for (const auto& executor : all) executor->close(deadline);
  // Nothing is added to the channels any more.
  for (auto& [peer, channel] : sends_) {
    if (!channel.streams->idle_by(deadline)) channel.device_comm->interrupt();
  }
  for (auto& [peer, channel] : receives_) channel->finish_on_devices(deadline);
}

void PointToPoint::set_timeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  place_.timeout = timeout;
  for (auto& [peer, channel] : sends_) {
    channel.comm->set_timeout(timeout);
    channel.device_comm->set_timeout(timeout);
  }
  for (auto& [peer, channel] : receives_) channel->set_timeout(timeout);
}

} // namespace whorl_torch
