#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "transports/faulty/endpoint.h"
#include "transports/transport.h"

namespace whorl {

/// Transport with faults, for tests: passes every call on to another transport, and disturbs its
/// messages as WHORL_FAULTY says. Has that transport's name and costs, so that the same algorithms
/// are chosen.
class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> below, FaultySettings settings);

  Result<std::vector<std::byte>> listen(const Identity& identity) override;
  Reach reach(const PeerInfo& self, const PeerInfo& peer, std::size_t index) const override {
    return below_->reach(self, peer, index);
  }
  std::size_t endpoint_bytes(int slots, std::size_t slot_bytes) const noexcept override {
    return below_->endpoint_bytes(slots, slot_bytes);
  }
  Status connect(const Membership& membership, std::span<const int> peers,
                 std::size_t index) override;

  Endpoint* endpoint(int peer, int channel) noexcept override;
  TransportMemory memory() const noexcept override { return below_->memory(); }
  std::uint64_t zero_copy_messages() const noexcept override {
    return below_->zero_copy_messages();
  }

  void block(std::uint64_t max_ns) noexcept override;
  void poll_failures(std::uint64_t waited_ns) noexcept override {
    below_->poll_failures(waited_ns);
  }
  void serve_idle_endpoints() noexcept override { below_->serve_idle_endpoints(); }
  void tell_stuck(const StuckOperation& operation,
                  std::span<const std::uint32_t> sent) noexcept override {
    below_->tell_stuck(operation, sent);
  }
  std::optional<StuckOperation> find_stuck(int peer) noexcept override;

  bool is_lost(int peer) noexcept override { return below_->is_lost(peer); }
  Result<std::vector<SocketAddress>> outer_addresses(const PeerInfo& info,
                                                     std::size_t index) const override {
    return below_->outer_addresses(info, index);
  }
  void notify_peers(const Status& comm_error) noexcept override {
    below_->notify_peers(comm_error);
  }
  bool revoke_access() noexcept override { return below_->revoke_access(); }

 private:
  std::unique_ptr<Transport> below_;
  FaultySettings settings_;
  std::optional<FaultInjector> injector_;                  ///< none before connect()
  std::size_t channels_ = 0;                               ///< endpoints for each peer
  std::vector<std::unique_ptr<FaultyEndpoint>> endpoints_; ///< [rank][channel]; null: no peer
};

} // namespace whorl
