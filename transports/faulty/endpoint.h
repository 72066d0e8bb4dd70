#pragma once

#include "transports/endpoint.h"
#include "transports/faulty/injector.h"

namespace whorl {

/// Endpoint that passes every call on to another one, whose messages it counts, hides for a while
/// and cuts short. The order of the messages stays.
class FaultyEndpoint final : public Endpoint {
 public:
  FaultyEndpoint(Endpoint& below, FaultInjector& injector, int peer, int channel) noexcept
      : Endpoint(below.traits()),
        below_(below),
        injector_(injector),
        peer_(peer),
        channel_(channel) {}

  std::span<std::byte> try_reserve(std::size_t bytes = kWholeSlot) noexcept override {
    return below_.try_reserve(bytes);
  }
  void commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept override;
  Message try_peek() noexcept override { return show(below_.try_peek()); }
  bool has_ended() noexcept override { return below_.has_ended(); }
  Message peek_arrived() noexcept override { return show(below_.peek_arrived()); }
  bool try_hear(Fingerprint& fingerprint) noexcept override;
  void release() noexcept override;

  bool can_send_descriptor(std::span<const std::byte> source) const noexcept override {
    return below_.can_send_descriptor(source);
  }
  DescriptorSend try_send_descriptor(std::span<const std::byte> source,
                                     const Fingerprint& fingerprint) noexcept override;
  std::uint64_t released() noexcept override { return below_.released(); }

  void post_recv(std::span<std::byte> destination, const Fingerprint& expected) noexcept override {
    below_.post_recv(destination, expected);
  }
  bool expose_recv_buffer(std::uint64_t number, std::span<std::byte> destination,
                          const Fingerprint& expected) noexcept override {
    return below_.expose_recv_buffer(number, destination, expected);
  }
  std::span<std::byte> try_put(std::size_t bytes,
                               const Fingerprint& fingerprint) noexcept override {
    return below_.try_put(bytes, fingerprint);
  }
  StoreHint store_hint(std::size_t bytes) const noexcept override {
    return below_.store_hint(bytes);
  }
  bool flushed() noexcept override { return below_.flushed(); }
  bool acknowledged() noexcept override { return below_.acknowledged(); }
  Progress progress() noexcept override { return below_.progress(); }

 private:
  /// Counts the next message to the peer, at the first attempt to hand it over.
  void count_send() noexcept;
  bool is_delayed() noexcept;
  Message show(Message message) noexcept;

  Endpoint& below_;
  FaultInjector& injector_;
  const int peer_, channel_;
  bool send_counted_ = false;      ///< whether the message that is to be handed over was counted
  bool found_ = false;             ///< whether the next message has arrived
  bool shown_ = false;             ///< whether the caller has been given it
  std::uint64_t shown_at_ns_ = 0;  ///< time from which on it may be given
  std::size_t received_bytes_ = 0; ///< size of the shown message for the caller
};

} // namespace whorl
