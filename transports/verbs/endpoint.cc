#include "transports/verbs/endpoint.h"

#include <atomic>
#include <bit>

namespace whorl {

using verbs::Credit;
using verbs::Line;
using verbs::Notice;

namespace {

/// Copies a line that the device may be writing.
Line read(Line& line) noexcept {
  Line::Words words;
  auto* const from = reinterpret_cast<std::uint64_t*>(&line);
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = std::atomic_ref(from[i]).load(std::memory_order_acquire);
  }
  return std::bit_cast<Line>(words);
}

} // namespace

std::span<std::byte> VerbsEndpoint::try_reserve(std::size_t bytes) noexcept {
  static_cast<void>(bytes);
  constexpr std::uint64_t kRequests = 2; // of a message, and of a credit in between
  if (sent_ - released_ == layout_.places() && !refresh()) {
    stuck_.store(true, std::memory_order_relaxed);
    return {};
  }
  if (!queue_.room(kRequests)) [[unlikely]] {
    completions_.poll();
    if (!queue_.room(kRequests)) return {};
  }
  return {memory_ + layout_.own_payload(sent_), layout_.slot_bytes()};
}

void VerbsEndpoint::commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept {
  std::byte* const payload = memory_ + layout_.own_payload(sent_);
  Line& line = at<Line>(layout_.own_line(sent_));
  const bool small = bytes <= verbs::kSmallBytes;
  if (small) std::memcpy(line.small.data(), payload, verbs::kSmallBytes);
  VerbsWrite write{.to = remote_ + layout_.line(sent_), .key = remote_key_};
  ++sent_;
  line.fingerprint = fingerprint;
  line.word = std::uint64_t{bytes} << 32 | static_cast<std::uint32_t>(sent_);
  line.seal = line.make_seal();
  write.from[0] = {&line, static_cast<std::uint32_t>(sizeof line + (small ? 0 : bytes)), key_};
  write.notice = Notice::of_message(sent_);
  queue_.post(write);
  last_request_ = queue_.posted();
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
  Line& line = at<Line>(layout_.line(received_));
  // The device writes the line in any order: `word` tells that the rest is worth a look.
  const std::uint64_t word = std::atomic_ref(line.word).load(std::memory_order_acquire);
  if (static_cast<std::uint32_t>(word) != static_cast<std::uint32_t>(received_ + 1)) {
    stuck_.store(true, std::memory_order_relaxed);
    return {};
  }
  const Line copy = read(line);
  if (copy.seal != copy.make_seal()) return {};
  const std::size_t bytes = copy.word >> 32;
  if (bytes > layout_.slot_bytes() || refused_) [[unlikely]] {
    malformed("a message larger than a slot");
    return {};
  }
  if (bytes <= verbs::kSmallBytes) return {line.small.data(), bytes, copy.fingerprint};
  if (!noticed(received_ + 1)) completions_.poll();
  if (!noticed(received_ + 1)) return {};
  return {memory_ + layout_.payload(received_), bytes, copy.fingerprint};
}

void VerbsEndpoint::take(Notice notice) noexcept {
  if (!notice.is_message()) return; // a credit, which only wakes
  const std::uint64_t number = notice.number(received_);
  // Small messages may have been released before their notice is looked at.
  if (number - received_ <= layout_.places()) noticed_[number % noticed_.size()] = number;
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
  Credit& own = at<Credit>(verbs::EndpointLayout::own_credit());
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
