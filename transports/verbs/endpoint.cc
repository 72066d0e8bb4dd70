#include "transports/verbs/endpoint.h"

#include <algorithm>
#include <atomic>
#include <bit>

namespace whorl {

using verbs::Credit;
using verbs::Line;
using verbs::Notice;
using verbs::Offer;

namespace {

/// Copies a record that the device may be writing. Returns whether it is whole.
template <class Record>
bool read(Record& record, Record* out) noexcept {
  verbs::Words words;
  auto* const from = reinterpret_cast<std::uint64_t*>(&record);
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = std::atomic_ref(from[i]).load(std::memory_order_acquire);
  }
  *out = std::bit_cast<Record>(words);
  return out->seal == verbs::make_seal(*out);
}

} // namespace

/// Returns whether a message can be sent now: there is a place and room in the queue.
bool VerbsEndpoint::may_send() noexcept {
  constexpr std::uint64_t kRequests = 2; // of a message, and of a credit in between
  if (sent_ - released_ == layout_.places() && !refresh()) {
    stuck_.store(true, std::memory_order_relaxed);
    return false;
  }
  if (!queue_.room(kRequests)) [[unlikely]]
    completions_.poll();
  return queue_.room(kRequests);
}

std::span<std::byte> VerbsEndpoint::try_reserve(std::size_t bytes) noexcept {
  static_cast<void>(bytes);
  if (!may_send()) return {};
  return {memory_ + layout_.own() + layout_.payload(sent_), layout_.slot_bytes()};
}

void VerbsEndpoint::commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept {
  std::byte* const payload = memory_ + layout_.own() + layout_.payload(sent_);
  send({payload, static_cast<std::uint32_t>(bytes), key_}, fingerprint, false);
}

DescriptorSend VerbsEndpoint::try_send_descriptor(std::span<const std::byte> source,
                                                  const Fingerprint& fingerprint) noexcept {
  if (!can_send_descriptor(source)) return DescriptorSend::kUnreachable;
  if (!may_send()) return DescriptorSend::kBusy;
  send({source.data(), static_cast<std::uint32_t>(source.size()), source_.get().local_key},
       fingerprint, true);
  last_described_ = sent_;
  return DescriptorSend::kSent;
}

/// Writes a message to the peer's memory: to the buffer that the peer has offered for it, else to
/// its place.
void VerbsEndpoint::send(const VerbsPiece& payload, const Fingerprint& fingerprint,
                         bool completion) noexcept {
  Offer offer;
  const bool placed = find_offer(payload.bytes, fingerprint, &offer);
  Line& line = at<Line>(layout_.own() + layout_.line(sent_));
  VerbsWrite write{.to = remote_ + layout_.line(sent_), .key = remote_key_};
  std::uint64_t& request = requests_[sent_ % layout_.places()];
  ++sent_;
  write.notice = Notice::of_message(sent_, placed);
  write.completion = completion;
  if (placed) {
    write.from[0] = payload;
    write.to = offer.address;
    write.key = offer.key;
  } else {
    const bool small = payload.bytes <= verbs::kSmallBytes;
    if (small) std::memcpy(line.small.data(), payload.data, verbs::kSmallBytes);
    line.fingerprint = fingerprint;
    line.word = std::uint64_t{payload.bytes} << 32 | static_cast<std::uint32_t>(sent_);
    line.seal = verbs::make_seal(line);
    write.from[0] = {&line, sizeof line, key_};
    if (!small) write.from[1] = payload;
  }
  queue_.post(write);
  request = last_request_ = queue_.posted();
}

/// Finds the buffer that the peer has offered for the next message, if that is such a message.
bool VerbsEndpoint::find_offer(std::uint32_t bytes, const Fingerprint& fingerprint,
                               Offer* offer) const noexcept {
  Offer& next = at<Offer>(verbs::EndpointLayout::offer(sent_));
  if (bytes < kMinSharedBytes ||
      std::atomic_ref(next.word).load(std::memory_order_acquire) != sent_ + 1) {
    return false;
  }
  return read(next, offer) && offer->word == sent_ + 1 && offer->bytes == bytes &&
         offer->fingerprint == fingerprint;
}

std::uint64_t VerbsEndpoint::released() noexcept {
  if (last_described_ <= written_) return sent_;
  completions_.poll();
  written_ = std::max(written_, released_);
  while (written_ < sent_ && requests_[written_ % layout_.places()] <= queue_.completed()) {
    ++written_;
  }
  if (last_described_ <= written_) return sent_;
  stuck_.store(true, std::memory_order_relaxed);
  return written_;
}

bool VerbsEndpoint::expose_recv_buffer(std::uint64_t number, std::span<std::byte> destination,
                                       const Fingerprint& expected) noexcept {
  if (number <= received_ || number > received_ + verbs::kOffers ||
      destination.size() > layout_.slot_bytes() || !target_.find(regions_, destination)) {
    return false;
  }
  if (!queue_.room(2)) completions_.poll();
  if (!queue_.room(2)) return false;
  const std::size_t where = verbs::EndpointLayout::offer(number - 1);
  Offer& offer = at<Offer>(layout_.own() + where);
  offer = {.address = reinterpret_cast<std::uint64_t>(destination.data()),
           .fingerprint = expected,
           .bytes = static_cast<std::uint32_t>(destination.size()),
           .key = target_.get().remote_key,
           .unused = {},
           .word = number,
           .seal = 0};
  offer.seal = verbs::make_seal(offer);
  offered_[number % verbs::kOffers] = {number, destination, expected};
  VerbsWrite write{.to = remote_ + where, .key = remote_key_};
  write.from[0] = {&offer, sizeof offer, key_};
  queue_.post(write);
  return true;
}

/// Reads how many messages the peer has released. Returns whether that has made room.
bool VerbsEndpoint::refresh() noexcept {
  Credit& credit = at<Credit>(verbs::EndpointLayout::credit());
  // The device writes both words; a count with half of another one does not fit its seal.
  const std::uint64_t released = std::atomic_ref(credit.released).load(std::memory_order_acquire);
  const std::uint64_t seal = std::atomic_ref(credit.seal).load(std::memory_order_relaxed);
  if (seal != Credit::of(released).seal) return false; // as before the first credit
  if (released < released_ || released > sent_) {
    malformed("a count of released messages that was never sent");
    return false;
  }
  if (released == released_) return false;
  released_ = released;
  completions_.poll(); // takes the notice of the credit, so that there is room for the next ones
  return true;
}

Message VerbsEndpoint::try_peek() noexcept {
  const std::uint64_t number = received_ + 1;
  const Offered& offered = offered_[number % verbs::kOffers];
  if (offered.number == number) {
    const Noticed* const notice = poll_notice(number);
    if (notice != nullptr && notice->placed) {
      return {offered.memory.data(), offered.memory.size(), offered.expected};
    }
  }
  Line& line = at<Line>(layout_.line(received_));
  // The device writes the line in any order: `word` tells that the rest is worth a look.
  const std::uint64_t word = std::atomic_ref(line.word).load(std::memory_order_acquire);
  if (static_cast<std::uint32_t>(word) != static_cast<std::uint32_t>(number)) {
    stuck_.store(true, std::memory_order_relaxed);
    return {};
  }
  Line copy;
  if (!read(line, &copy)) return {};
  const std::size_t bytes = copy.word >> 32;
  if (bytes > layout_.slot_bytes() || refused_) [[unlikely]] {
    malformed("a message larger than a slot");
    return {};
  }
  if (bytes <= verbs::kSmallBytes) return {line.small.data(), bytes, copy.fingerprint};
  if (poll_notice(number) == nullptr) return {};
  return {memory_ + layout_.payload(received_), bytes, copy.fingerprint};
}

void VerbsEndpoint::take(Notice notice) noexcept {
  if (!notice.is_message()) return; // a credit, which only wakes
  const std::uint64_t number = notice.number(received_);
  // Small messages may have been released before their notice is looked at.
  if (number == received_ || number - received_ > layout_.places()) return;
  if (notice.is_placed() && offered_[number % verbs::kOffers].number != number) {
    return malformed("a message to a buffer that was not offered");
  }
  noticed_[number % noticed_.size()] = {number, notice.is_placed()};
}

void VerbsEndpoint::release() noexcept {
  ++received_;
  if (received_ - credited_ >= layout_.batch()) give_credit();
}

/// Tells the peer how many messages were released, if there is room in the queue.
void VerbsEndpoint::give_credit() noexcept {
  completions_.poll(); // takes the notices of the messages, before the peer may send more
  if (!queue_.room(1)) [[unlikely]]
    return;
  Credit& own = at<Credit>(layout_.own() + verbs::EndpointLayout::credit());
  own = Credit::of(received_);
  VerbsWrite write{.to = remote_ + verbs::EndpointLayout::credit(), .key = remote_key_};
  write.from[0] = {&own, sizeof own, key_};
  write.notice = Notice::of_credit();
  queue_.post(write);
  credited_ = received_;
}

bool VerbsEndpoint::flushed() noexcept {
  if (queue_.completed() >= last_request_) return true;
  queue_.request_completion();
  completions_.poll();
  // A peer that has left answers no request any more, though all that it needed has arrived.
  return queue_.completed() >= last_request_ || judge_.has_left(peer_);
}

Progress VerbsEndpoint::progress() noexcept {
  if (received_ - credited_ >= layout_.batch()) give_credit();
  if (++calls_ % kCallsPerPoll == 0 || queue_.failed()) completions_.poll();
  if (refused_) return Progress::kFailed;
  return queue_.failed() ? judge_.connection_failed(peer_, queue_) : Progress::kIdle;
}

void VerbsEndpoint::malformed(const char* what) noexcept {
  if (!refused_) judge_.malformed(peer_, what);
  refused_ = true;
}

} // namespace whorl
