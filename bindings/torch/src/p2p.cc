#include "bindings/torch/src/p2p.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "bindings/torch/src/errors.h"
#include "bindings/torch/src/types.h"

namespace whorl_torch {
namespace {

struct Header {
  std::int64_t tag;
  std::uint64_t bytes;
};
static_assert(sizeof(Header) == 16);

constexpr int kSender = 0, kReceiver = 1; // ranks of a channel
constexpr std::chrono::milliseconds kForever{std::numeric_limits<int>::max()};

/// The exception being handled. The library knows the ranks of the channel only: adds the group's.
std::exception_ptr with_ranks(int source, int destination) {
  try {
    throw;
  } catch (c10::Error& error) {
    error.add_context(c10::str("a message from rank ", source, " to rank ", destination,
                               " of the group; \"rank ", kSender, "\" and \"rank ", kReceiver,
                               "\" in the text are these two"));
    return std::current_exception();
  } catch (...) {
    return std::current_exception();
  }
}

void transmit(Communicator& comm, const at::Tensor& tensor, std::int64_t tag) {
  const at::Tensor dense = dense_copy(tensor);
  const Header header{tag, dense.nbytes()};
  whorlComm_t handle = comm.get();
  check(whorlSend(&header, sizeof header, whorlUint8, kReceiver, handle, nullptr), handle);
  if (header.bytes > 0) {
    check(whorlSend(dense.data_ptr(), header.bytes, whorlUint8, kReceiver, handle, nullptr),
          handle);
  }
}

} // namespace

ReceiveChannel::ReceiveChannel(Communicator::Place place, int source, int destination)
    : comm_(std::move(place)), source_(source), destination_(destination) {}

bool ReceiveChannel::ready() const {
  return std::any_of(posted_.begin(), posted_.end(),
                     [](const auto& request) { return !request->claimed.load(); });
}

void ReceiveChannel::post(const std::shared_ptr<ReceiveRequest>& request, bool serve) {
  Lock lock(mutex_);
  // Those that another channel has brought would stay for as long as this one is silent.
  std::erase_if(posted_, [](const auto& earlier) { return earlier->claimed.load(); });
  posted_.push_back(request);
  std::vector<Finished> finished = ended_ ? fail_all(ended_) : match_kept();
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
  return std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, __LINE__},
      c10::str("whorl: rank ", destination_, " receives ", request.target.nbytes(),
               " bytes from rank ", source_, " with tag ", request.tag, ", but rank ", source_,
               " sends ", bytes, "; give both the same shape and dtype")));
}

Executor::Finished ReceiveChannel::deliver(const std::shared_ptr<ReceiveRequest>& request,
                                           const at::Tensor& bytes) {
  std::exception_ptr error;
  if (static_cast<std::size_t>(bytes.numel()) != request->dense.nbytes()) {
    error = wrong_size(*request, static_cast<std::uint64_t>(bytes.numel()));
  } else {
    if (bytes.numel() > 0) {
      std::memcpy(request->dense.data_ptr(), bytes.data_ptr(), request->dense.nbytes());
    }
    copy_values(request->target, request->dense);
  }
  request->work->set_source(source_);
  return executed(request->work, error);
}

std::vector<Executor::Finished> ReceiveChannel::match_kept() {
  std::vector<Finished> finished;
  for (auto it = kept_.begin(); it != kept_.end();) {
    const auto request = claim(it->tag);
    if (request == nullptr) {
      ++it;
      continue;
    }
    finished.push_back(deliver(request, it->bytes));
    it = kept_.erase(it);
  }
  return finished;
}

std::vector<Executor::Finished> ReceiveChannel::fail_all(const std::exception_ptr& reason) {
  std::vector<Finished> finished;
  for (const auto& request : posted_) {
    if (--request->channels > 0) continue; // another rank may still send
    if (!request->claimed.exchange(true)) finished.push_back(executed(request->work, reason));
  }
  posted_.clear();
  return finished;
}

std::vector<Executor::Finished> ReceiveChannel::take_all(const std::exception_ptr& reason) {
  return fail_all(reason);
}

std::vector<Executor::Finished> ReceiveChannel::step(Lock& lock) {
  Header header{};
  std::shared_ptr<ReceiveRequest> request;
  at::Tensor bytes;
  std::exception_ptr error;
  const bool named = std::any_of(posted_.begin(), posted_.end(), [](const auto& posted) {
    return !posted->from_any && !posted->claimed.load();
  });
  lock.unlock();
  try {
    // Where only receives from any rank are posted, this rank need not be the one that sends.
    whorlComm_t comm = named ? comm_.get() : comm_.get(kForever);
    check(whorlRecv(&header, sizeof header, whorlUint8, kSender, comm, nullptr), comm);
    lock.lock();
    request = claim(header.tag);
    delivering_ = request != nullptr;
    lock.unlock();
    const bool fits = request != nullptr && request->dense.nbytes() == header.bytes;
    if (!fits) bytes = at::empty({static_cast<std::int64_t>(header.bytes)}, at::kByte);
    void* const destination = fits ? request->dense.data_ptr() : bytes.data_ptr();
    if (header.bytes > 0) {
      comm = comm_.get();
      check(whorlRecv(destination, header.bytes, whorlUint8, kSender, comm, nullptr), comm);
    }
    if (fits) copy_values(request->target, request->dense);
  } catch (...) {
    error = with_ranks(source_, destination_);
  }
  lock.lock();
  delivering_ = false;
  std::vector<Finished> finished;
  if (error) {
    if (!ended_) ended_ = error; // the order of the messages is lost
    finished = fail_all(error);
    if (request != nullptr) finished.push_back(executed(request->work, error));
  } else if (request != nullptr) {
    request->work->set_source(source_);
    finished.push_back(
        executed(request->work, bytes.defined() ? wrong_size(*request, header.bytes) : nullptr));
  } else {
    kept_.push_back({header.tag, std::move(bytes)});
    finished = match_kept(); // it may have been posted meanwhile
  }
  return finished;
}

PointToPoint::PointToPoint(Communicator::Place place) : place_(std::move(place)) {}

Communicator::Place PointToPoint::channel_place(int source, int destination) const {
  Communicator::Place place = place_;
  place.prefix = c10::str(place_.prefix, "p2p/", source, "-", destination, "/");
  place.name = c10::str("channel ", source, "->", destination, " of ", place_.name);
  place.size = 2;
  place.ranks = {source, destination};
  place.rank = place_.rank == source ? kSender : kReceiver;
  return place;
}

PointToPoint::SendChannel& PointToPoint::to(int peer) {
  const std::lock_guard lock(mutex_);
  if (ended_) std::rethrow_exception(ended_);
  SendChannel& channel = sends_[peer];
  if (channel.comm == nullptr) {
    channel.comm = std::make_shared<Communicator>(channel_place(place_.rank, peer));
    channel.queue = std::make_shared<WorkQueue>([comm = channel.comm] { comm->interrupt(); });
  }
  return channel;
}

std::shared_ptr<ReceiveChannel> PointToPoint::from(int peer) {
  const std::lock_guard lock(mutex_);
  if (ended_) std::rethrow_exception(ended_);
  std::shared_ptr<ReceiveChannel>& channel = receives_[peer];
  if (channel == nullptr) {
    channel = std::make_shared<ReceiveChannel>(channel_place(peer, place_.rank), peer, place_.rank);
  }
  return channel;
}

std::function<void()> PointToPoint::sender(const at::Tensor& tensor, int peer, std::int64_t tag) {
  return [comm = to(peer).comm, tensor, tag, rank = place_.rank, peer] {
    try {
      transmit(*comm, tensor, tag);
    } catch (...) {
      std::rethrow_exception(with_ranks(rank, peer));
    }
  };
}

void PointToPoint::send(const WorkPtr& work, int peer, bool serve) {
  to(peer).queue->push(work, serve);
}

void PointToPoint::receive(std::shared_ptr<ReceiveRequest> request, int source, bool serve) {
  const std::chrono::milliseconds patience = timeout();
  // Weak, for the work would keep itself alive; as long as it is posted the request lives.
  request->work->set_patience(
      patience, [weak = std::weak_ptr(request), source, patience, rank = place_.rank] {
        const auto overdue = weak.lock();
        if (overdue == nullptr || overdue->claimed.exchange(true)) return; // it is being delivered
        overdue->work->complete(std::make_exception_ptr(c10::DistBackendError(
            {"receive", __FILE__, __LINE__},
            c10::str("whorl: rank ", rank, " received nothing with tag ", overdue->tag, " from ",
                     source == kAnySource ? std::string("any rank") : c10::str("rank ", source),
                     " within ", patience.count(), " ms"))));
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

void PointToPoint::close(std::chrono::milliseconds patience) {
  std::vector<std::shared_ptr<Executor>> all;
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) {
      ended_ = std::make_exception_ptr(c10::DistBackendError(
          {__func__, __FILE__, __LINE__}, "whorl: the process group has been shut down"));
    }
    all = executors();
  }
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (const auto& executor : all) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    executor->close(std::max(left, std::chrono::milliseconds(0)));
  }
}

void PointToPoint::set_timeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  place_.timeout = timeout;
  for (auto& [peer, channel] : sends_) channel.comm->set_timeout(timeout);
  for (auto& [peer, channel] : receives_) channel->set_timeout(timeout);
}

} // namespace whorl_torch
