// The receiving side of a channel of two ranks.
#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "bindings/torch/src/errors.h"
#include "bindings/torch/src/p2p.h"
#include "bindings/torch/src/p2p_message.h"
#include "bindings/torch/src/types.h"

namespace whorl_torch {
namespace {

constexpr std::chrono::milliseconds kUnlimited{std::numeric_limits<int>::max()};

} // namespace

ReceiveChannel::ReceiveChannel(Communicator::Place place, Communicator::Place device_place,
                               int source, int destination)
    : comm_(std::move(place)),
      device_comm_(std::make_shared<Communicator>(std::move(device_place))),
      source_(source),
      destination_(destination) {}

void ReceiveChannel::finish_on_devices(Deadline deadline) {
  if (!streams_.idle_by(deadline)) device_comm_->interrupt();
}

bool ReceiveChannel::ready() const {
  return std::any_of(posted_.begin(), posted_.end(),
                     [](const auto& request) { return !request->claimed.load(); });
}

void ReceiveChannel::post(const std::shared_ptr<ReceiveRequest>& request, bool serve) {
  Lock lock(mutex_);
  // Requests that another channel has served would stay for as long as this channel is silent.
  std::erase_if(posted_, [](const auto& earlier) { return earlier->claimed.load(); });
  posted_.push_back(request);
  std::vector<Finished> finished = ended_ ? take_all(ended_) : match_unexpected();
  if (finished.empty()) changed(lock, serve);
  lock.unlock();
  complete(std::move(finished));
}

std::shared_ptr<ReceiveRequest> ReceiveChannel::claim(std::int64_t tag) {
  for (auto it = posted_.begin(); it != posted_.end();) {
    if ((*it)->tag != tag) {
      it = (*it)->claimed.load() ? posted_.erase(it) : std::next(it);
      continue;
    }
    std::shared_ptr<ReceiveRequest> request = *it;
    it = posted_.erase(it);
    if (!request->claimed.exchange(true)) return request;
  }
  return nullptr;
}

std::exception_ptr ReceiveChannel::wrong_size(const ReceiveRequest& request,
                                              std::uint64_t bytes) const {
  return backend_error("whorl: rank ", destination_, " receives ", request.target.nbytes(),
                       " bytes from rank ", source_, " with tag ", request.tag, ", but rank ",
                       source_, " sends ", bytes, "; give both the same shape and dtype");
}

Executor::Finished ReceiveChannel::deliver(const std::shared_ptr<ReceiveRequest>& request,
                                           const at::Tensor& bytes) {
  std::exception_ptr error;
  if (static_cast<std::size_t>(bytes.numel()) != request->target.nbytes()) {
    error = wrong_size(*request, static_cast<std::uint64_t>(bytes.numel()));
  } else if (request->device != nullptr) {
    error = deliver_on_device(*request, bytes);
  } else {
    if (bytes.numel() > 0) {
      std::memcpy(request->dense.data_ptr(), bytes.data_ptr(), request->dense.nbytes());
    }
    copy_values(request->target, request->dense);
  }
  request->work->set_source(source_);
  return executed(request->work, error);
}

std::exception_ptr ReceiveChannel::deliver_on_device(const ReceiveRequest& request,
                                                     const at::Tensor& bytes) noexcept {
  try {
    request.device->queue(streams_, device_comm_, [&](void*) {
      if (bytes.numel() == 0) return;
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      // A copy from memory that is not pinned would wait for what is in the stream, which waits for
      // peers. torch keeps pinned memory until the stream has passed the copy.
      const at::Tensor from = at::globalContext().hasCUDA() ? bytes.pin_memory() : bytes;
      request.target.copy_(from.view(request.target.scalar_type()).view(request.target.sizes()),
                           /*non_blocking=*/true);
    });
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

std::vector<Executor::Finished> ReceiveChannel::match_unexpected() {
  std::vector<Finished> finished;
  for (auto it = unexpected_.begin(); it != unexpected_.end();) {
    const auto request = claim(it->tag);
    if (request == nullptr) {
      ++it;
      continue;
    }
    finished.push_back(deliver(request, it->bytes));
    it = unexpected_.erase(it);
  }
  return finished;
}

std::vector<Executor::Finished> ReceiveChannel::take_all(const std::exception_ptr& reason) {
  std::vector<Finished> finished;
  for (const auto& request : posted_) {
    if (--request->channels > 0) continue; // another rank may still send
    if (!request->claimed.exchange(true)) finished.push_back(executed(request->work, reason));
  }
  posted_.clear();
  return finished;
}

at::Tensor ReceiveChannel::receive_elements(std::uint64_t size, bool from_device,
                                            const std::shared_ptr<ReceiveRequest>& request) {
  const bool fits = request != nullptr && request->target.nbytes() == size;
  Communicator& comm = from_device ? *device_comm_ : comm_;
  whorlComm_t handle = size > 0 ? comm.get() : nullptr;
  if (fits && from_device && request->device != nullptr) {
    request->device->queue(streams_, device_comm_, [&](void* stream) {
      if (handle == nullptr) return;
      const at::Tensor dense = dense_like(request->target);
      check(whorlRecv(dense.data_ptr(), size, whorlUint8, kSender, handle, stream), handle);
      copy_values(request->target, dense);
    });
    return {};
  }
  const bool direct = fits && request->device == nullptr;
  at::Tensor bytes;
  if (!direct) bytes = at::empty({static_cast<std::int64_t>(size)}, at::kByte);
  void* const destination = direct ? request->dense.data_ptr() : bytes.data_ptr();
  if (handle != nullptr) {
    check(whorlRecv(destination, size, whorlUint8, kSender, handle, nullptr), handle);
  }
  if (direct) copy_values(request->target, request->dense);
  return bytes;
}

std::vector<Executor::Finished> ReceiveChannel::step(Lock& lock) {
  MessageHeader header{};
  std::shared_ptr<ReceiveRequest> request;
  at::Tensor bytes;
  std::exception_ptr error;
  const bool named = std::any_of(posted_.begin(), posted_.end(), [](const auto& posted) {
    return !posted->from_any && !posted->claimed.load();
  });
  lock.unlock();
  try {
    // Where only receives from any rank are posted, this rank need not be the one that sends.
    whorlComm_t comm = named ? comm_.get() : comm_.get(kUnlimited);
    check(whorlRecv(&header, sizeof header, whorlUint8, kSender, comm, nullptr), comm);
    lock.lock();
    request = claim(header.tag);
    delivering_ = request != nullptr;
    lock.unlock();
    bytes = receive_elements(header.bytes, header.from_device != 0, request);
  } catch (...) {
    error = with_ranks(source_, destination_);
  }
  lock.lock();
  delivering_ = false;
  std::vector<Finished> finished;
  if (error) {
    if (!ended_) ended_ = error; // the order of the messages is lost
    finished = take_all(error);
    if (request != nullptr) finished.push_back(executed(request->work, error));
  } else if (request != nullptr) {
    request->work->set_source(source_);
    finished.push_back(bytes.defined() ? deliver(request, bytes)
                                       : executed(request->work, nullptr));
  } else {
    unexpected_.push_back({header.tag, std::move(bytes)});
    finished = match_unexpected(); // a receive for the message may have been posted meanwhile
  }
  return finished;
}

} // namespace whorl_torch
