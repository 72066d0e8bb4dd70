#include "transports/verbs/endpoint.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

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

VerbsEndpoint::VerbsEndpoint(int peer, std::size_t channel, const verbs::EndpointLayout& layout,
                             std::byte* memory, std::vector<VerbsRail> rails, VerbsJudge& judge,
                             RailWatch& watch)
    : Endpoint({.recv_buffers_ahead = verbs::kOffers, .queues_sends = rails.size() > 1}),
      peer_(peer),
      channel_(channel),
      layout_(layout),
      memory_(memory),
      judge_(judge),
      watch_(watch),
      rails_(std::move(rails)),
      outgoing_(layout.places()),
      noticed_(layout.places()) {
  carriers_.reserve(rails_.size());
  to_repeat_.reserve(layout.places());
  if (rails_.size() > 1) watch_.add(*this);
  choose_carriers();
}

void VerbsEndpoint::set_remote(const verbs::EndpointAddress& remote) noexcept {
  remote_ = remote.memory;
  for (std::size_t i = 0; i < rails_.size(); ++i) rails_[i].remote_key = remote.rails[i].key;
}

int VerbsEndpoint::connect(std::size_t rail, const verbs::RailAddress& own,
                           const verbs::RailAddress& remote, const verbs::PortAddress& peer,
                           const VerbsPort& port, const VerbsSettings& settings) noexcept {
  return rails_[rail].queue->connect(*this, own, remote, remote_, peer, port, settings);
}

/// Looks for completions at all rails but those that nothing comes by any more.
void VerbsEndpoint::poll() noexcept {
  for (const VerbsRail& rail : rails_) {
    if (rail.state == VerbsRail::State::kClosed && rail.closed_by_peer) continue;
    rail.completions->poll();
  }
}

bool VerbsEndpoint::close() noexcept {
  for (const VerbsRail& rail : rails_) rail.queue->close();
  poll();
  return std::all_of(rails_.begin(), rails_.end(),
                     [](const VerbsRail& rail) { return rail.queue->drained(); });
}

// --- sending ---

/// Returns whether a message can be sent now: there is a place, and room in the queues.
bool VerbsEndpoint::may_send() noexcept {
  constexpr std::uint64_t kRequests = 2; // of a message, and of a credit in between
  if (sent_ - released_ == layout_.places() && !refresh()) {
    stuck_.store(true, std::memory_order_relaxed);
    return false;
  }
  const auto has_room = [this](std::uint8_t rail) { return rails_[rail].queue->room(kRequests); };
  if (std::all_of(carriers_.begin(), carriers_.end(), has_room)) [[likely]]
    return true;
  poll();
  return std::all_of(carriers_.begin(), carriers_.end(), has_room);
}

std::span<std::byte> VerbsEndpoint::try_reserve(std::size_t bytes) noexcept {
  static_cast<void>(bytes);
  if (!may_send()) return {};
  return {memory_ + layout_.own() + layout_.payload(sent_), layout_.slot_bytes()};
}

void VerbsEndpoint::commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept {
  send({memory_ + layout_.own() + layout_.payload(sent_), bytes}, false, fingerprint);
}

DescriptorSend VerbsEndpoint::try_send_descriptor(std::span<const std::byte> source,
                                                  const Fingerprint& fingerprint) noexcept {
  if (!can_send_descriptor(source)) return DescriptorSend::kUnreachable;
  if (!may_send()) return DescriptorSend::kBusy;
  send(source, true, fingerprint);
  last_from_heap_ = sent_;
  return DescriptorSend::kSent;
}

/// Returns whether the devices of all rails that are left may use memory of the heap.
bool VerbsEndpoint::registered(LastRegion VerbsRail::*last,
                               std::span<const std::byte> memory) const noexcept {
  return std::all_of(rails_.begin(), rails_.end(), [&](VerbsRail& rail) {
    return rail.state != VerbsRail::State::kAlive || (rail.*last).find(*rail.regions, memory);
  });
}

/// Writes a message to the peer's memory: to the buffer that the peer has offered for it, else to
/// its place.
void VerbsEndpoint::send(std::span<const std::byte> payload, bool from_heap,
                         const Fingerprint& fingerprint) noexcept {
  Offer offer;
  Sent& message = outgoing(sent_ + 1);
  message.payload = payload;
  message.from_heap = from_heap;
  message.placed = find_offer(payload.size(), fingerprint, &offer);
  if (message.placed) {
    message.to = offer.address;
    message.keys = offer.keys;
  } else {
    Line& line = at<Line>(layout_.own() + layout_.line(sent_));
    if (payload.size() <= verbs::kSmallBytes) {
      std::memcpy(line.small.data(), payload.data(), verbs::kSmallBytes);
      message.payload = {};
    }
    line.fingerprint = fingerprint;
    line.word = Line::make_word(sent_ + 1, received_, payload.size());
    credited_ = received_;
    line.seal = verbs::make_seal(line);
  }
  ++sent_;
  post(sent_);
}

/// Returns the rail for a message that is prepared: large ones take the carriers in turn.
std::size_t VerbsEndpoint::carrier_of(std::uint64_t number) noexcept {
  return outgoing(number).payload.empty() ? carriers_.front()
                                          : carriers_[(number - 1) % carriers_.size()];
}

/// Posts the request of a message that is prepared.
void VerbsEndpoint::post(std::uint64_t number) noexcept {
  const std::size_t index = carrier_of(number);
  VerbsRail& rail = rails_[index];
  Sent& message = outgoing(number);
  std::uint32_t key = rail.key;
  if (message.from_heap) {
    rail.source.find(*rail.regions, message.payload);
    key = rail.source.get().local_key;
  }
  const VerbsPiece payload{message.payload.data(),
                           static_cast<std::uint32_t>(message.payload.size()), key};
  VerbsWrite write{.notice = Notice::of_message(number, message.placed),
                   .completion = message.from_heap || traits().queues_sends};
  if (message.placed) {
    write.from[0] = payload;
    write.to = message.to;
    write.key = message.keys[index];
  } else {
    write.from[0] = {memory_ + layout_.own() + layout_.line(number - 1), sizeof(Line), rail.key};
    write.from[1] = payload;
    write.to = remote_ + layout_.line(number - 1);
    write.key = rail.remote_key;
  }
  rail.queue->post(write);
  message.rail = static_cast<std::uint8_t>(index);
  message.request = rail.last_request = rail.queue->posted();
}

/// Finds the buffer that the peer has offered for the next message, if that is such a message.
bool VerbsEndpoint::find_offer(std::size_t bytes, const Fingerprint& fingerprint,
                               Offer* offer) const noexcept {
  Offer& next = at<Offer>(verbs::EndpointLayout::offer(sent_));
  if (bytes < kMinSharedBytes ||
      std::atomic_ref(next.word).load(std::memory_order_acquire) != sent_ + 1) {
    return false;
  }
  return read(next, offer) && offer->word == sent_ + 1 && offer->bytes == bytes &&
         offer->fingerprint == fingerprint;
}

/// Returns whether a message is known to be in the peer's memory.
bool VerbsEndpoint::is_written(const Sent& message) const noexcept {
  return message.request <= rails_[message.rail].queue->completed();
}

std::uint64_t VerbsEndpoint::released() noexcept {
  if (last_from_heap_ <= written_) return sent_;
  poll();
  written_ = std::max(written_, released_);
  // A message that was copied needs no source, and its request need not ask for a completion.
  const auto needs_no_source = [this](const Sent& message) {
    return !message.from_heap || is_written(message);
  };
  while (written_ < sent_ && needs_no_source(outgoing(written_ + 1))) ++written_;
  // A peer that has left answers no request any more, though all that it needed has arrived.
  if (last_from_heap_ <= written_ || judge_.has_left(peer_)) return sent_;
  stuck_.store(true, std::memory_order_relaxed);
  return written_;
}

/// Reads how many messages the peer has released. Returns whether that has made room.
bool VerbsEndpoint::refresh() noexcept {
  Credit& credit = at<Credit>(verbs::EndpointLayout::credit());
  // The device writes both words; a count with half of another one does not fit its seal.
  const std::uint64_t released = std::atomic_ref(credit.released).load(std::memory_order_acquire);
  const std::uint64_t seal = std::atomic_ref(credit.seal).load(std::memory_order_relaxed);
  if (seal != Credit::of(released).seal) return false; // as before the first credit
  if (released > sent_) {
    malformed("a count of released messages that was never sent");
    return false;
  }
  if (released <= released_) return false; // lines of messages have told as much
  released_ = released;
  poll(); // takes the notice of the credit, so that there is room for the next ones
  return true;
}

bool VerbsEndpoint::flushed() noexcept {
  bool all = to_repeat_.empty();
  for (VerbsRail& rail : rails_) {
    if (rail.closed_by_peer) continue; // what was lost there is sent again
    if (rail.queue->completed() >= rail.last_request) continue;
    rail.queue->request_completion(rail.last_request);
    rail.completions->poll();
    all &= rail.queue->completed() >= rail.last_request;
  }
  // A peer that has left answers no request any more, though all that it needed has arrived.
  return all || judge_.has_left(peer_);
}

// --- receiving ---

bool VerbsEndpoint::expose_recv_buffer(std::uint64_t number, std::span<std::byte> destination,
                                       const Fingerprint& expected) noexcept {
  if (number <= received_ || number > received_ + verbs::kOffers ||
      destination.size() > layout_.slot_bytes() || !registered(&VerbsRail::target, destination)) {
    return false;
  }
  VerbsRail& carrier = rails_[carriers_.front()];
  if (!carrier.queue->room(2)) carrier.completions->poll();
  if (!carrier.queue->room(2)) return false;
  const std::size_t where = verbs::EndpointLayout::offer(number - 1);
  Offer& offer = at<Offer>(layout_.own() + where);
  offer = {.address = reinterpret_cast<std::uint64_t>(destination.data()),
           .fingerprint = expected,
           .bytes = static_cast<std::uint32_t>(destination.size()),
           .unused = 0,
           .keys = {},
           .word = number,
           .seal = 0};
  for (std::size_t i = 0; i < rails_.size(); ++i) offer.keys[i] = rails_[i].target.get().remote_key;
  offer.seal = verbs::make_seal(offer);
  offered_[number % verbs::kOffers] = {number, destination, expected};
  VerbsWrite write{.to = remote_ + where, .key = carrier.remote_key};
  write.from[0] = {&offer, sizeof offer, carrier.key};
  carrier.queue->post(write);
  return true;
}

/// Returns the notice of a message, also if the device reports it only now; null if there is none.
const VerbsEndpoint::Noticed* VerbsEndpoint::poll_notice(std::uint64_t number) noexcept {
  if (const Noticed* const known = find_notice(number)) return known;
  poll();
  return find_notice(number);
}

/// Returns whether a small message is there as a whole: it may be taken without its notice.
bool VerbsEndpoint::has_small(std::uint64_t number) const noexcept {
  Line copy;
  return read(at<Line>(layout_.line(number - 1)), &copy) && Line::has_number(copy.word, number) &&
         Line::bytes(copy.word) <= verbs::kSmallBytes;
}

Message VerbsEndpoint::try_peek() noexcept {
  const Message message = find_message();
  if (!message) stuck_.store(true, std::memory_order_relaxed);
  return message;
}

/// Does the same as try_peek(), without a note that this side has to wait.
Message VerbsEndpoint::find_message() noexcept {
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
  if (!Line::has_number(word, number)) return {};
  Line copy;
  if (!read(line, &copy)) return {};
  const std::size_t bytes = Line::bytes(copy.word);
  if (bytes > layout_.slot_bytes() || refused_) [[unlikely]] {
    malformed("a message larger than a slot");
    return {};
  }
  // An older count, in a line that was sent again, looks like one of too many.
  const std::uint64_t released = Line::released(copy.word, released_);
  if (released <= sent_) released_ = released;
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
  if (const Noticed* const notice = find_notice(received_ + 1);
      notice != nullptr && notice->placed) {
    // The message came without a line; an older one must not look like that of a later message.
    std::atomic_ref(at<Line>(layout_.line(received_)).word).store(0, std::memory_order_relaxed);
  }
  ++received_;
  // Takes notices, before the peer learns of released messages and may send more.
  if (received_ % layout_.batch() == 0) poll();
  if (received_ - credited_ >= layout_.batch()) give_credit();
}

/// Tells the peer how many messages were released, if there is room in the queue. While a rail is
/// closed on one side only, an older count may still arrive there, and would stand for the newer.
void VerbsEndpoint::give_credit() noexcept {
  const bool half_closed = std::any_of(rails_.begin(), rails_.end(), [](const VerbsRail& rail) {
    return rail.state != VerbsRail::State::kAlive && !rail.closed_by_peer;
  });
  VerbsRail& carrier = rails_[carriers_.front()];
  if (!carrier.queue->room(1)) carrier.completions->poll();
  if (half_closed || !carrier.queue->room(1)) [[unlikely]]
    return;
  Credit& own = at<Credit>(layout_.own() + verbs::EndpointLayout::credit());
  own = Credit::of(received_);
  VerbsWrite write{.to = remote_ + verbs::EndpointLayout::credit(), .key = carrier.remote_key};
  write.from[0] = {&own, sizeof own, carrier.key};
  write.notice = Notice::of_credit();
  carrier.queue->post(write);
  credited_ = received_;
  credit_lost_ = false;
}

Progress VerbsEndpoint::progress() noexcept {
  if (received_ - credited_ >= layout_.batch()) give_credit();
  if (++calls_ % kCallsPerPoll == 0) poll();
  if (refused_) return Progress::kFailed;
  watch_.serve();
  return look_at_rails();
}

void VerbsEndpoint::malformed(const char* what) noexcept {
  if (!refused_) judge_.malformed(peer_, what);
  refused_ = true;
}

} // namespace whorl
