#include "transports/ucx/endpoint.h"

#include <algorithm>
#include <cstring>

namespace whorl {
namespace {

/// Raises a count; messages may arrive in another order than they were sent.
void raise(std::atomic<std::uint64_t>& count, std::uint64_t value) noexcept {
  // Under the worker's mutex, so no other thread writes. seq_cst: see release().
  if (value > count.load(std::memory_order_relaxed)) count.store(value);
}

} // namespace

std::size_t UcxEndpoint::memory_bytes(int slots, std::size_t slot_bytes) noexcept {
  const auto count = static_cast<std::size_t>(slots);
  return (count + window(count)) * slot_bytes;
}

UcxEndpoint::UcxEndpoint(UcxLink& link, std::uint32_t channel, int slots, std::size_t slot_bytes,
                         std::span<std::byte> memory)
    : Endpoint({.recv_buffers_ahead = kBuffersAhead, .queues_sends = true}),
      link_(link),
      channel_(channel),
      slots_(static_cast<std::size_t>(slots)),
      window_(window(slots_)),
      slot_bytes_(slot_bytes),
      memory_(memory.data()),
      outgoing_(std::make_unique<Outgoing[]>(slots_)),
      positions_(std::make_unique<std::uint64_t[]>(window_)),
      arrivals_(std::make_unique<Arrival[]>(window_)) {
  for (std::size_t i = 0; i < slots_; ++i) outgoing_[i].owner = this;
  for (std::size_t i = 0; i < window_; ++i) arrivals_[i].owner = this;
  for (Outgoing& credit : credits_) credit.owner = this;
}

// --- sending ---

void UcxEndpoint::on_sent(void* request, ucs_status_t status, void* argument) {
  auto& message = *static_cast<Outgoing*>(argument);
  UcxLink& link = message.owner->link_;
  if (status != UCS_OK) link.fail(status);
  message.done.store(true, std::memory_order_release); // pairs with acquire in count_completed()
  link.worker.api().request_free(request);
}

void UcxEndpoint::count_completed() noexcept {
  const auto done = [this](std::uint64_t number) {
    return outgoing_[number % slots_].done.load(std::memory_order_acquire);
  };
  while (completed_ < sent_ && done(completed_)) ++completed_;
}

/// Returns whether there is a slot for a further message; moves messages if there is none.
bool UcxEndpoint::may_send() noexcept {
  if (failed_) return false;
  const auto room = [this] {
    return sent_ - completed_ < slots_ &&
           sent_ - credited_.load(std::memory_order_relaxed) < window_;
  };
  if (room()) return true;
  link_.worker.progress();
  count_completed();
  if (room()) return true;
  if (link_.failed() || end_.load(std::memory_order_acquire) != UINT64_MAX) lost();
  return false;
}

std::span<std::byte> UcxEndpoint::try_reserve(std::size_t bytes) noexcept {
  static_cast<void>(bytes);
  if (!may_send()) return {};
  return {slot(sent_), slot_bytes_};
}

void UcxEndpoint::commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept {
  post(slot(sent_), bytes, fingerprint);
}

DescriptorSend UcxEndpoint::try_send_descriptor(std::span<const std::byte> source,
                                                const Fingerprint& fingerprint) noexcept {
  if (!can_send_descriptor(source)) return DescriptorSend::kUnreachable;
  if (!may_send()) return DescriptorSend::kBusy;
  post(source.data(), source.size(), fingerprint);
  return DescriptorSend::kSent;
}

void UcxEndpoint::post(const std::byte* payload, std::size_t bytes,
                       const Fingerprint& fingerprint) noexcept {
  Outgoing& message = outgoing_[sent_ % slots_];
  const std::uint64_t number = sent_++;
  std::uint64_t wanted = 0;
  if (sent_ - credited_.load(std::memory_order_relaxed) > slots_ &&
      sent_ - asked_at_ >= window_ - slots_) {
    asked_at_ = sent_;
    asked_for_ = wanted = sent_ - slots_;
  }
  reported_.store(received_, std::memory_order_relaxed);
  message.header = {.token = link_.token_of_peer,
                    .from = static_cast<std::uint32_t>(link_.self),
                    .channel = channel_,
                    .number = number,
                    .released = received_,
                    .wanted = wanted,
                    .fingerprint = fingerprint};
  message.done.store(false, std::memory_order_relaxed);
  const std::lock_guard lock(link_.worker.mutex());
  if (link_.send(ucx::kData, message.header, payload, bytes, &on_sent, &message)) {
    message.done.store(true, std::memory_order_relaxed);
  }
  positions_[number % window_] = link_.sent_bytes.load(std::memory_order_relaxed);
}

std::uint64_t UcxEndpoint::released() noexcept {
  count_completed();
  return completed_;
}

bool UcxEndpoint::flushed() noexcept {
  count_completed();
  return !pending() && link_.flushed();
}

void UcxEndpoint::take_counts(const ucx::Header& header) noexcept {
  if (header.released > credited_.load(std::memory_order_relaxed)) {
    link_.arrived(positions_[(header.released - 1) % window_]);
  }
  raise(credited_, header.released);
  if (header.wanted == 0) return;
  raise(wanted_, header.wanted);
  pay_credit();
}

// --- receiving ---

bool UcxEndpoint::expose_recv_buffer(std::uint64_t number, std::span<std::byte> destination,
                                     const Fingerprint& expected) noexcept {
  if (number <= received_ || number > received_ + kBuffersAhead) return false;
  const std::lock_guard lock(link_.worker.mutex());
  exposed_[number % kBuffersAhead] = {number, destination, expected};
  return true;
}

ucs_status_t UcxEndpoint::refuse(const char* what) noexcept {
  link_.judge.malformed(link_.rank, what);
  return UCS_OK; // UCX drops the message
}

ucs_status_t UcxEndpoint::arrive(const ucx::Header& header, void* data, std::size_t bytes,
                                 std::uint64_t attributes) noexcept {
  Arrival& message = arrival(header.number);
  const std::uint64_t consumed = consumed_.load(std::memory_order_relaxed);
  if (header.number - consumed >= window_ ||
      message.state.load(std::memory_order_acquire) != State::kEmpty) { // … release in release()
    return refuse("a message out of order");
  }
  if (bytes > slot_bytes_) return refuse("a message larger than a slot");
  message.bytes = bytes;
  message.fingerprint = header.fingerprint;
  message.held = nullptr;
  message.to_exposed = false;
  message.data = arrival_slot(header.number);
  ucs_status_t result = UCS_OK;
  if ((attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    fetch(message, header.number, data);
    result = UCS_INPROGRESS;
  } else {
    if ((attributes & UCP_AM_RECV_ATTR_FLAG_DATA) != 0 && bytes > kCopyBytes) {
      message.held = data;
      message.data = static_cast<const std::byte*>(data);
      result = UCS_INPROGRESS;
    } else if (bytes > 0) {
      std::memcpy(arrival_slot(header.number), data, bytes);
    }
    message.state.store(State::kReady, std::memory_order_release); // … acquire in try_peek()
  }
  take_counts(header);
  return result;
}

/// Begins to fetch the payload of a message that was only announced.
void UcxEndpoint::fetch(Arrival& message, std::uint64_t number, void* descriptor) noexcept {
  std::byte* target = arrival_slot(number);
  const Exposed& exposed = exposed_[(number + 1) % kBuffersAhead];
  if (!revoked_ && exposed.number == number + 1 && exposed.memory.size() == message.bytes &&
      exposed.expected == message.fingerprint) {
    target = exposed.memory.data();
    message.to_exposed = true;
  }
  message.data = target;
  message.state.store(State::kFetching, std::memory_order_relaxed);
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.recv_am = &on_fetched;
  param.user_data = &message;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  const UcxWorker& worker = link_.worker;
  const ucs_status_ptr_t request =
      worker.api().am_recv_data_nbx(worker.handle(), descriptor, target, message.bytes, &param);
  if (UCS_PTR_IS_PTR(request)) return;
  if (UCS_PTR_IS_ERR(request)) {
    link_.fail(UCS_PTR_STATUS(request));
    message.to_exposed = false;
    return;
  }
  message.state.store(State::kReady, std::memory_order_release);
}

void UcxEndpoint::on_fetched(void* request, ucs_status_t status, std::size_t bytes,
                             void* argument) {
  auto& message = *static_cast<Arrival*>(argument);
  UcxLink& link = message.owner->link_;
  if (status == UCS_OK && bytes == message.bytes) {
    message.state.store(State::kReady, std::memory_order_release); // … acquire in try_peek()
  } else {
    message.to_exposed = false; // and never ready
    link.fail(status == UCS_OK ? UCS_ERR_MESSAGE_TRUNCATED : status);
  }
  link.worker.api().request_free(request);
}

/// Finds the oldest message. `needed`: whether it is a failure if the peer has left without one.
Message UcxEndpoint::peek(bool needed) noexcept {
  const Arrival& message = arrival(received_);
  const auto ready = [&] { // pairs with release in arrive() and on_fetched()
    return message.state.load(std::memory_order_acquire) == State::kReady;
  };
  if (!ready()) {
    if (failed_) return {};
    link_.worker.progress();
    if (!ready()) {
      if (link_.failed() || has_ended()) lost(needed);
      return {};
    }
  }
  // A message without payload has an address, too.
  return {message.data, message.bytes, message.fingerprint};
}

void UcxEndpoint::release() noexcept {
  Arrival& message = arrival(received_);
  ++received_;
  if (message.held != nullptr) {
    const std::lock_guard lock(link_.worker.mutex());
    link_.worker.api().am_data_release(link_.worker.handle(), message.held);
    message.held = nullptr;
  }
  message.state.store(State::kEmpty, std::memory_order_release); // … acquire in arrive()
  // seq_cst: either this thread sees the wish for a credit that arrives at the same time, or the
  // thread that takes the wish sees this count.
  consumed_.store(received_);
  if (owes_credit()) {
    const std::lock_guard lock(link_.worker.mutex());
    pay_credit();
  }
}

bool UcxEndpoint::owes_credit() const noexcept {
  const std::uint64_t wanted = wanted_.load();
  return wanted > reported_.load(std::memory_order_relaxed) && consumed_.load() >= wanted;
}

/// Tells the peer how many messages were released if it waits for that; the caller holds the
/// worker's mutex.
void UcxEndpoint::pay_credit() noexcept {
  if (!owes_credit() || link_.failed()) return;
  const auto free = std::find_if(credits_.begin(), credits_.end(), [](const Outgoing& credit) {
    return credit.done.load(std::memory_order_relaxed);
  });
  if (free == credits_.end()) return; // progress() tries again
  const std::uint64_t count = consumed_.load();
  reported_.store(count, std::memory_order_relaxed);
  free->header = {.token = link_.token_of_peer,
                  .from = static_cast<std::uint32_t>(link_.self),
                  .channel = channel_,
                  .released = count};
  free->done.store(false, std::memory_order_relaxed);
  if (link_.send(ucx::kCredit, free->header, nullptr, 0, &on_sent, &*free)) {
    free->done.store(true, std::memory_order_relaxed);
  }
}

// --- both ---

Progress UcxEndpoint::progress() noexcept {
  if (failed_) return Progress::kFailed;
  count_completed();
  if (!pending() && !link_.flush_pending()) return Progress::kIdle;
  const std::uint64_t before = completed_;
  if (owes_credit()) {
    const std::lock_guard lock(link_.worker.mutex());
    pay_credit();
  }
  link_.worker.progress();
  count_completed();
  if (link_.failed() && !flushed()) lost();
  if (failed_) return Progress::kFailed;
  return completed_ != before ? Progress::kAdvanced : Progress::kIdle;
}

void UcxEndpoint::lost(bool needed) noexcept {
  if (link_.lost(needed) == Progress::kFailed) failed_ = true;
}

bool UcxEndpoint::busy() const noexcept {
  const auto sending = [](const Outgoing& message) {
    return !message.done.load(std::memory_order_acquire);
  };
  const auto fetching = [](const Arrival& message) {
    return message.to_exposed && message.state.load(std::memory_order_acquire) == State::kFetching;
  };
  return std::any_of(outgoing_.get(), outgoing_.get() + slots_, sending) ||
         std::any_of(arrivals_.get(), arrivals_.get() + window_, fetching);
}

void UcxEndpoint::drop_messages() noexcept {
  for (std::size_t i = 0; i < window_; ++i) {
    void*& held = arrivals_[i].held;
    if (held != nullptr) link_.worker.api().am_data_release(link_.worker.handle(), held);
    held = nullptr;
  }
}

} // namespace whorl
