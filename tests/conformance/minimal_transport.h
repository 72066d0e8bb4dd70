#pragma once

#include <memory>
#include <vector>

#include "transports/inproc/transport.h"

namespace whorl::test {

/// An endpoint with what every endpoint must have, and nothing else: the skeleton of a new one.
/// Messages go through the FIFO of another endpoint, of which only these four calls are used.
class MinimalEndpoint final : public Endpoint {
 public:
  explicit MinimalEndpoint(Endpoint& fifo) : fifo_(fifo) {}

  std::span<std::byte> try_reserve(std::size_t bytes = kWholeSlot) noexcept override {
    return fifo_.try_reserve(bytes);
  }
  void commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept override {
    fifo_.commit(bytes, fingerprint);
    ++sent_;
  }
  Message try_peek() noexcept override { return fifo_.try_peek(); }
  void release() noexcept override {
    fifo_.release();
    ++received_;
  }

 private:
  Endpoint& fifo_;
};

/// A transport with what every transport must have, and nothing else.
class MinimalTransport final : public Transport {
 public:
  MinimalTransport() : Transport({.name = "minimal"}) {}

  Result<std::vector<std::byte>> listen(const Identity& identity) override {
    return below_.listen(identity);
  }
  Reach reach(const PeerInfo& self, const PeerInfo& peer, std::size_t index) const override {
    return below_.reach(self, peer, index);
  }
  std::size_t endpoint_bytes(int slots, std::size_t slot_bytes) const noexcept override {
    return below_.endpoint_bytes(slots, slot_bytes);
  }
  Status connect(const Membership& membership, std::span<const int> peers,
                 std::size_t index) override {
    WHORL_TRY(below_.connect(membership, peers, index));
    channels_ = static_cast<std::size_t>(membership.channels);
    endpoints_.resize(static_cast<std::size_t>(membership.nranks) * channels_);
    for (const int peer : peers) {
      for (int channel = 0; channel < membership.channels; ++channel) {
        endpoints_[static_cast<std::size_t>(peer) * channels_ + static_cast<std::size_t>(channel)] =
            std::make_unique<MinimalEndpoint>(*below_.endpoint(peer, channel));
      }
    }
    return {};
  }
  Endpoint* endpoint(int peer, int channel) noexcept override {
    // The transport below knows which peers and channels there are.
    if (below_.endpoint(peer, channel) == nullptr) return nullptr;
    return endpoints_[static_cast<std::size_t>(peer) * channels_ +
                      static_cast<std::size_t>(channel)]
        .get();
  }
  TransportMemory memory() const noexcept override { return below_.memory(); }
  void block(std::uint64_t max_ns) noexcept override { below_.block(max_ns); }
  void poll_failures(std::uint64_t waited_ns) noexcept override { below_.poll_failures(waited_ns); }
  void notify_peers(const Status& comm_error) noexcept override { below_.notify_peers(comm_error); }

 private:
  InprocTransport below_;
  std::size_t channels_ = 0;
  std::vector<std::unique_ptr<MinimalEndpoint>> endpoints_; ///< [rank][channel]
};

} // namespace whorl::test
