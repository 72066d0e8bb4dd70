#include "simulation/traffic.h"

#include <algorithm>
#include <cstring>

#include "simulation/world.h"

namespace whorl::simulation {
namespace {

constexpr std::uint64_t kMessagesOfOperation = 20;

/// Bytes of which payloads are parts.
std::span<const std::byte> noise() {
  static const std::vector<std::byte> bytes = [] {
    std::vector<std::byte> made(1 << 18);
    Random random(1);
    for (std::byte& byte : made) byte = static_cast<std::byte>(random.next());
    return made;
  }();
  return bytes;
}

} // namespace

std::size_t Stream::bytes(std::uint64_t number) const noexcept {
  return sizes[Random::mix(salt + 2 * number) % sizes.size()];
}

std::span<const std::byte> Stream::payload(std::uint64_t number) const noexcept {
  const std::size_t size = bytes(number);
  return noise().subspan(Random::mix(salt + 2 * number + 1) % (noise().size() - size), size);
}

Fingerprint Stream::fingerprint(std::uint64_t number) const noexcept {
  // Several messages belong to one operation.
  return {.sequence = static_cast<std::uint32_t>(number / kMessagesOfOperation),
          .count_plan = salt};
}

void copy_in_pieces(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t done = 0;
  while (bytes - done > 16 && world().random().chance(30)) {
    const std::size_t piece = world().random().below((bytes - done) / 8) * 8;
    std::memcpy(to + done, from + done, piece);
    done += piece;
  }
  std::memcpy(to + done, from + done, bytes - done);
}

// --- Sender ---

Sender::Sender(Endpoint& endpoint, const Stream& stream, std::span<std::byte> sources)
    : endpoint_(endpoint), stream_(stream), sources_(sources) {}

void Sender::choose_way() {
  chosen_ = true;
  source_filled_ = false;
  Random& random = world().random();
  way_ = random.one_of(Way::kCopy, Way::kCopyIntoWholeSlot);
  if (!sources_.empty()) way_ = random.one_of(way_, Way::kPut, Way::kDescriptor, Way::kDescriptor);
  source_ = random.below(kSources);
}

Progress Sender::step() {
  if (sent_ == stream_.messages) {
    return endpoint_.released() == sent_ ? Progress::kDone : Progress::kIdle;
  }
  if (!chosen_) choose_way();
  const std::size_t bytes = stream_.bytes(sent_ + 1);
  bool sent = false;
  if (way_ == Way::kDescriptor) {
    sent = send_descriptor();
  } else if (way_ == Way::kPut) {
    const std::span<std::byte> memory = endpoint_.try_put(bytes, stream_.fingerprint(sent_ + 1));
    if (memory.empty()) {
      sent = world().random().chance(50) && copy(bytes); // otherwise later, or by try_put() again
    } else {
      world().require(memory.size() == bytes, "try_put() gave {} bytes for {}", memory.size(),
                      bytes);
      copy_in_pieces(memory.data(), stream_.payload(sent_ + 1).data(), bytes);
      endpoint_.commit(bytes, stream_.fingerprint(sent_ + 1));
      sent = true;
    }
  } else {
    sent = copy(way_ == Way::kCopy ? bytes : Endpoint::kWholeSlot);
  }
  if (!sent) return Progress::kIdle;
  chosen_ = false;
  ++sent_;
  world().note("sent message {} of {} bytes", sent_, bytes);
  world().require(endpoint_.sent() == sent_, "sent() is {} after {} messages", endpoint_.sent(),
                  sent_);
  return Progress::kAdvanced;
}

bool Sender::copy(std::size_t reserved) {
  const std::size_t bytes = stream_.bytes(sent_ + 1);
  std::span<std::byte> memory = endpoint_.try_reserve(reserved);
  if (memory.empty() && bytes > 0) return false;
  if (memory.data() == nullptr) return false;
  if (world().random().chance(10)) {
    world().require(endpoint_.try_reserve(reserved).data() == memory.data(),
                    "two calls of try_reserve() return different memory");
  }
  world().require(memory.size() >= bytes, "try_reserve() gave {} bytes for {}", memory.size(),
                  bytes);
  copy_in_pieces(memory.data(), stream_.payload(sent_ + 1).data(), bytes);
  endpoint_.commit(bytes, stream_.fingerprint(sent_ + 1));
  return true;
}

bool Sender::send_descriptor() {
  const std::size_t bytes = stream_.bytes(sent_ + 1);
  const std::span<std::byte> source =
      sources_.subspan(source_ * (sources_.size() / kSources / 64 * 64)).first(bytes);
  if (!endpoint_.can_send_descriptor(source)) {
    way_ = Way::kCopy;
    return false;
  }
  if (!source_filled_) {
    if (endpoint_.released() < needed_until_[source_]) return false;
    copy_in_pieces(source.data(), stream_.payload(sent_ + 1).data(), bytes);
    source_filled_ = true;
  }
  switch (endpoint_.try_send_descriptor(source, stream_.fingerprint(sent_ + 1))) {
    case DescriptorSend::kSent:
      needed_until_[source_] = sent_ + 1;
      return true;
    case DescriptorSend::kBusy:
      return false;
    case DescriptorSend::kUnreachable:
      break;
  }
  world().fail("a source that can be sent by descriptor cannot be reached");
  return false;
}

void Sender::spoil_sources() {
  if (!sources_.empty()) std::memset(sources_.data(), 0xaa, sources_.size());
}

// --- Receiver ---

Receiver::Receiver(Endpoint& endpoint, const Stream& stream, std::span<std::byte> buffers)
    : endpoint_(endpoint), stream_(stream), buffers_(buffers) {}

std::span<std::byte> Receiver::buffer(std::uint64_t number) const noexcept {
  const std::size_t size = buffers_.size() / kRecvBuffersAhead;
  return buffers_.subspan(number % kRecvBuffersAhead * size, stream_.bytes(number));
}

/// Exposes buffers for messages ahead, but not for all of them.
void Receiver::expose() {
  if (buffers_.empty() || received_ == 0) return;
  next_exposed_ = std::max(next_exposed_, received_ + 1);
  const std::uint64_t ahead = world().random().below(endpoint_.traits().recv_buffers_ahead + 1);
  for (; next_exposed_ <= std::min(received_ + ahead, stream_.messages); ++next_exposed_) {
    if (stream_.bytes(next_exposed_) < kMinSharedBytes || world().random().chance(20)) continue;
    // Some buffers are not what the sender has to send, as where ranks disagree on an operation.
    const bool other_operation = world().random().chance(10);
    std::span<std::byte> memory = buffer(next_exposed_);
    if (memory.size() >= 2 * kMinSharedBytes && world().random().chance(10)) {
      memory = memory.first(memory.size() / 2);
    } else if (!other_operation) {
      agreed_[next_exposed_ % kRecvBuffersAhead] = next_exposed_;
    }
    const std::uint64_t operation_of =
        other_operation ? next_exposed_ + kMessagesOfOperation : next_exposed_;
    if (!endpoint_.expose_recv_buffer(next_exposed_, memory, stream_.fingerprint(operation_of))) {
      world().fail("expose_recv_buffer() refuses a buffer in the heap");
    }
  }
}

Progress Receiver::step() {
  if (received_ == stream_.messages) return Progress::kDone;
  expose();
  const Message message = endpoint_.try_peek();
  if (!message) return Progress::kIdle;
  // A rank may find a message that it can use only together with those of other ranks.
  if (held_for_ == 0 && world().random().chance(15)) held_for_ = 1 + world().random().below(40);
  if (held_for_ > 1) {
    --held_for_;
    return Progress::kIdle;
  }
  held_for_ = 0;
  const std::uint64_t number = received_ + 1;
  const std::span<const std::byte> expected = stream_.payload(number);
  world().note("found message {} of {} bytes", number, message.bytes);
  world().require(message.bytes == expected.size(), "message {} has {} bytes instead of {}", number,
                  message.bytes, expected.size());
  world().require(message.fingerprint == stream_.fingerprint(number),
                  "message {} has the fingerprint of operation {}", number,
                  message.fingerprint.sequence);
  world().require(buffers_.empty() || message.data != buffer(number).data() ||
                      agreed_[number % kRecvBuffersAhead] == number,
                  "message {} is in a buffer that was not exposed for it", number);
  std::vector<std::byte> copy(message.bytes);
  copy_in_pieces(copy.data(), message.data, message.bytes);
  world().require(std::equal(copy.begin(), copy.end(), expected.begin()),
                  "message {} has other bytes than were sent", number);
  endpoint_.release();
  ++received_;
  // Whether or not the sender used the buffer for this message, it is this side's again.
  if (!buffers_.empty() && expected.size() >= kMinSharedBytes) {
    const std::span<std::byte> own = buffer(number);
    std::memset(own.data(), 0x55, own.size());
  }
  return Progress::kAdvanced;
}

void Receiver::spoil_buffers() {
  if (!buffers_.empty()) std::memset(buffers_.data(), 0x55, buffers_.size());
}

} // namespace whorl::simulation
