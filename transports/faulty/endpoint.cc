#include "transports/faulty/endpoint.h"

#include "base/system.h"

namespace whorl {

void FaultyEndpoint::count_send() noexcept {
  if (!send_counted_) injector_.count_message(peer_);
  send_counted_ = true;
}

void FaultyEndpoint::commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept {
  count_send();
  // Also after a failure: the peer waits until the memory of try_put() is no longer written to.
  below_.commit(bytes, fingerprint);
  send_counted_ = false;
  ++sent_;
}

DescriptorSend FaultyEndpoint::try_send_descriptor(std::span<const std::byte> source,
                                                   const Fingerprint& fingerprint) noexcept {
  if (!below_.can_send_descriptor(source)) return DescriptorSend::kUnreachable;
  count_send();
  const DescriptorSend sent = below_.try_send_descriptor(source, fingerprint);
  if (sent == DescriptorSend::kSent) {
    send_counted_ = false;
    ++sent_;
  }
  return sent;
}

/// Returns whether a message that has been found is still delayed.
bool FaultyEndpoint::is_delayed() noexcept {
  if (!found_) {
    found_ = true;
    const std::uint64_t delay = injector_.delay_ns(peer_, channel_, received_ + 1);
    shown_at_ns_ = delay != 0 ? sys().now_ns() + delay : 0;
  }
  return shown_at_ns_ != 0 && sys().now_ns() < shown_at_ns_;
}

bool FaultyEndpoint::try_hear(Fingerprint& fingerprint) noexcept {
  return below_.try_hear(fingerprint) && !is_delayed() && !injector_.failed();
}

/// Returns what the caller is to see of a message of the endpoint below.
Message FaultyEndpoint::show(Message message) noexcept {
  if (!message) return message;
  if (!shown_) {
    if (is_delayed()) return {};
    injector_.count_message(peer_);
    received_bytes_ = injector_.received_bytes(message.bytes);
    shown_ = true;
  }
  if (injector_.failed()) return {};
  message.bytes = received_bytes_;
  return message;
}

void FaultyEndpoint::release() noexcept {
  below_.release();
  found_ = shown_ = false;
  ++received_;
}

} // namespace whorl
