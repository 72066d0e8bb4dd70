#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transports/control/network_transport.h"
#include "transports/control/slot_memory.h"
#include "transports/ucx/endpoint.h"

namespace whorl {

/// Transport over UCX: active messages on one worker for each communicator, through whatever fabric
/// UCX knows. The TCP control sockets of transports/control carry the workers' addresses, errors,
/// goodbyes, and the death of a peer, of which UCX may not tell.
class UcxTransport final : public NetworkTransport {
 public:
  UcxTransport()
      : NetworkTransport({.name = "ucx", .slot_bytes = 256 * 1024, .polls_by_system_calls = true}) {
  }
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;
  ~UcxTransport() override;

  /// Loads UCX and makes a worker; fails where there is no UCX.
  Result<std::vector<std::byte>> listen(const Identity& identity) override;
  Reach reach(const PeerInfo& self, const PeerInfo& peer, std::size_t index) const override;
  Status connect(const Membership& membership, std::span<const int> peers,
                 std::size_t index) override;
  Endpoint* endpoint(int peer, int channel) noexcept override;
  std::size_t endpoint_bytes(int slots, std::size_t slot_bytes) const noexcept override;
  TransportMemory memory() const noexcept override;

  void block(std::uint64_t max_ns) noexcept override;
  void poll_failures(std::uint64_t waited_ns) noexcept override;
  bool revoke_access() noexcept override;

 private:
  static ucs_status_t on_data(void* argument, const void* header, std::size_t header_bytes,
                              void* data, std::size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t on_credit(void* argument, const void* header, std::size_t header_bytes,
                                void* data, std::size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t on_hello(void* argument, const void* header, std::size_t header_bytes,
                               void* data, std::size_t bytes, const ucp_am_recv_param_t* param);

  UcxLink* find(int rank) noexcept;
  UcxLink* sender_of(const void* header, std::size_t bytes, ucx::Header& out) noexcept;
  UcxEndpoint* receiver_of(const void* header, std::size_t bytes, ucx::Header& out) noexcept;
  Status make_endpoints(std::span<const int> peers);
  Status make_connections(std::span<MeshLink> sockets);
  Status greet();
  void flush_all() noexcept;
  void close_connections() noexcept;
  bool closed() noexcept;

  const Membership* membership_ = nullptr;
  SlotMemory memory_; ///< memory of all endpoints
  std::vector<std::unique_ptr<UcxLink>> links_;
  std::vector<int> link_of_rank_; ///< index in links_, −1 for none
  bool closing_ = false;          ///< guarded by the worker's mutex
  std::unique_ptr<UcxWorker> worker_;
};

} // namespace whorl
