#include "transports/tcp/endpoint.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "transports/control/links.h"

namespace whorl {

std::size_t TcpEndpoint::memory_bytes(int slots, std::size_t slot_bytes) noexcept {
  return static_cast<std::size_t>(slots) * (kLead + slot_bytes) + slot_bytes + kStageBytes;
}

TcpEndpoint::TcpEndpoint(StreamSocket socket, int peer, int slots, std::size_t slot_bytes,
                         std::span<std::byte> memory, FailureJudge& judge)
    : Endpoint({.queues_sends = true}),
      socket_(std::move(socket)),
      peer_(peer),
      slots_(static_cast<std::size_t>(slots)),
      slot_bytes_(slot_bytes),
      judge_(judge),
      slots_memory_(memory.data()),
      payloads_(std::make_unique<const std::byte*[]>(static_cast<std::size_t>(slots))),
      buffer_(memory.data() + slots_ * (kLead + slot_bytes)),
      stage_(buffer_ + slot_bytes) {
  socket_.allow_read_ahead();
}

// --- sending ---

std::span<std::byte> TcpEndpoint::try_reserve(std::size_t bytes) noexcept {
  static_cast<void>(bytes);
  if (failed_ || sent_ - written_ == slots_) return {};
  return {slot(sent_), slot_bytes_};
}

void TcpEndpoint::commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept {
  enqueue(slot(sent_), bytes, fingerprint);
  flush();
}

DescriptorSend TcpEndpoint::try_send_descriptor(std::span<const std::byte> source,
                                                const Fingerprint& fingerprint) noexcept {
  if (!can_send_descriptor(source)) return DescriptorSend::kUnreachable;
  if (failed_ || sent_ - written_ == slots_) return DescriptorSend::kBusy;
  const std::byte* payload = source.data();
  if (source.size() <= kSmallBytes) { // copying costs less than a second piece
    std::byte* const copy = slot(sent_);
    if (!source.empty()) std::memcpy(copy, source.data(), source.size());
    payload = copy;
  }
  enqueue(payload, source.size(), fingerprint);
  flush();
  return DescriptorSend::kSent;
}

void TcpEndpoint::enqueue(const std::byte* payload, std::size_t bytes,
                          const Fingerprint& fingerprint) noexcept {
  tcp::MessageHeader written;
  written.bytes = static_cast<std::uint32_t>(bytes);
  written.fingerprint = fingerprint;
  written.number = sent_;
  std::memcpy(header(sent_), &written, sizeof written);
  payloads_[sent_ % slots_] = payload;
  ++sent_;
}

bool TcpEndpoint::flush() noexcept {
  bool moved = false;
  while (written_ < sent_ && !failed_) {
    std::array<iovec, 2 * kBatch> parts;
    std::size_t count = 0;
    std::size_t total = 0;
    std::size_t skip = head_written_;
    const auto add = [&](const void* data, std::size_t size) {
      const std::size_t done = std::min(skip, size);
      skip -= done;
      if (done == size) return;
      parts[count++] = {static_cast<std::byte*>(const_cast<void*>(data)) + done, size - done};
      total += size - done;
    };
    const std::uint64_t end = std::min<std::uint64_t>(sent_, written_ + kBatch);
    for (std::uint64_t number = written_; number < end; ++number) {
      const std::size_t bytes = header(number)->bytes;
      const std::byte* const payload = payloads_[number % slots_];
      if (payload == slot(number)) {
        add(header(number), sizeof(tcp::MessageHeader) + bytes);
      } else {
        add(header(number), sizeof(tcp::MessageHeader));
        add(payload, bytes);
      }
    }
    const ssize_t result = socket_.send(std::span<const iovec>(parts.data(), count));
    if (result == -EAGAIN) return moved;
    if (result < 0) {
      lost(static_cast<int>(result));
      return moved;
    }
    moved = moved || result > 0;
    head_written_ += static_cast<std::size_t>(result);
    while (written_ < sent_) {
      const std::size_t size = sizeof(tcp::MessageHeader) + header(written_)->bytes;
      if (head_written_ < size) break;
      head_written_ -= size;
      ++written_;
    }
    if (static_cast<std::size_t>(result) < total) return moved; // the socket is full
  }
  return moved;
}

// --- receiving ---

void TcpEndpoint::post_recv(std::span<std::byte> destination,
                            const Fingerprint& expected) noexcept {
  posted_ = destination;
  expected_ = expected;
  expected_bytes_ = destination.size();
}

Message TcpEndpoint::try_peek() noexcept {
  if (!ready_ && !failed_) receive();
  if (!ready_) return {};
  return {target_, header_.bytes, header_.fingerprint};
}

Message TcpEndpoint::peek_arrived() noexcept {
  if (ended_) return {};
  needed_ = false;
  const Message message = try_peek();
  needed_ = true;
  return message;
}

bool TcpEndpoint::try_hear(Fingerprint& fingerprint) noexcept {
  if (!has_header_ && (failed_ || !receive_header())) return false;
  fingerprint = header_.fingerprint;
  return true;
}

void TcpEndpoint::release() noexcept {
  ready_ = false;
  has_header_ = false;
  posted_ = {};
  ++received_;
}

/// Reads until a header is complete and has been accepted. Returns false if it has not arrived, or
/// is invalid.
bool TcpEndpoint::receive_header() noexcept {
  while (staged() < sizeof header_) {
    std::memmove(stage_, stage_ + stage_begin_, staged());
    stage_end_ -= stage_begin_;
    stage_begin_ = 0;
    const std::size_t want = std::max(read_ahead(), sizeof header_);
    const std::size_t got =
        read({}, {stage_ + stage_end_, std::min(want, kStageBytes) - stage_end_});
    stage_end_ += got;
    if (got == 0) return false;
  }
  return accept_header();
}

/// Receives until a message is complete or nothing has arrived. Each pass of the loop reads once.
///
///     stage_ ┌────────┬─────────────┬────────┬──────   bytes in the order of the stream; what is
///            │ header │ payload …   │ header │ …       staged of a payload is copied to target_,
///            └────────┴─────────────┴────────┴──────   the rest of it is read straight to target_
void TcpEndpoint::receive() noexcept {
  if (!has_header_ && !receive_header()) return;
  for (;;) {
    if (got_ == 0) {
      // Only now may user memory be written: the message is the expected one.
      const bool fits =
          !posted_.empty() && posted_.size() == header_.bytes && header_.fingerprint == expected_;
      target_ = fits ? posted_.data() : buffer_;
    }
    const std::size_t from_stage = std::min(staged(), header_.bytes - got_);
    if (from_stage > 0) {
      std::memcpy(target_ + got_, stage_ + stage_begin_, from_stage);
      stage_begin_ += from_stage;
      got_ += from_stage;
    }
    if (got_ == header_.bytes) {
      ready_ = true;
      return;
    }
    stage_begin_ = stage_end_ = 0; // all of it was payload
    const std::size_t rest = header_.bytes - got_;
    const std::size_t got = read({target_ + got_, rest}, {stage_, read_ahead()});
    if (got == 0) return;
    got_ += std::min(got, rest);
    stage_end_ = got - std::min(got, rest);
  }
}

std::size_t TcpEndpoint::read(std::span<std::byte> first, std::span<std::byte> second) noexcept {
  const std::array<iovec, 2> parts{{{first.data(), first.size()}, {second.data(), second.size()}}};
  const ssize_t got = socket_.receive(std::span(parts).subspan(first.empty() ? 1 : 0));
  if (got > 0) return static_cast<std::size_t>(got);
  if (got != -EAGAIN) lost(static_cast<int>(got));
  return 0;
}

/// Takes the header from the stage and checks it before use. Returns false, and sets the error, if
/// the header is invalid.
bool TcpEndpoint::accept_header() noexcept {
  std::memcpy(&header_, stage_ + stage_begin_, sizeof header_);
  stage_begin_ += sizeof header_;
  const char* const wrong = header_.magic != tcp::MessageHeader::kMagic ? "no message header"
                            : header_.bytes > slot_bytes_ ? "a message larger than a slot"
                            : header_.number != received_ ? "a message out of order"
                                                          : nullptr;
  if (wrong != nullptr) {
    failed_ = true;
    judge_.malformed(peer_, wrong);
    return false;
  }
  has_header_ = true;
  got_ = 0;
  expected_bytes_ = header_.bytes;
  return true;
}

// --- both ---

Progress TcpEndpoint::progress() noexcept {
  if (failed_) return Progress::kFailed;
  if (written_ == sent_) return Progress::kIdle;
  const bool moved = flush();
  if (failed_) return Progress::kFailed;
  return moved ? Progress::kAdvanced : Progress::kIdle;
}

void TcpEndpoint::lost(int error) noexcept {
  const Progress verdict = judge_.connection_lost(peer_, error, needed_);
  failed_ |= verdict == Progress::kFailed;
  ended_ |= verdict == Progress::kDone;
}

void TcpEndpoint::close() noexcept {
  failed_ = true;
  close_gently(socket_.get(), {buffer_, slot_bytes_});
  socket_.reset();
}

} // namespace whorl
