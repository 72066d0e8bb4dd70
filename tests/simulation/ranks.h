#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "simulation/exchange.h"
#include "transports/fifo/transport.h"

namespace whorl::simulation {

struct HostShape {
  int ranks = 2;
  std::uint32_t channels = 1;
  std::uint32_t slots = 2;
  std::size_t slot_bytes = 64;
  std::size_t heap_bytes = 0; ///< bytes of each rank's heap; 0: no messages without a copy
};

/// The memory that the ranks of a simulated host share: the segment, and the heap of each.
class Host {
 public:
  explicit Host(const HostShape& shape);
  const HostShape& shape() const noexcept { return shape_; }
  const SegmentLayout& layout() const noexcept { return layout_; }
  std::byte* segment() const noexcept { return segment_; }
  RankState& state(std::size_t rank) const noexcept {
    return *reinterpret_cast<RankState*>(segment_ + layout_.state_offset(rank));
  }
  std::span<std::byte> heap(int rank) const noexcept {
    return heaps_[static_cast<std::size_t>(rank)];
  }
  /// Number of the fibre of each rank.
  std::vector<std::size_t> fibres;

 private:
  HostShape shape_;
  SegmentLayout layout_;
  std::byte* segment_;
  std::vector<std::span<std::byte>> heaps_;
};

/// FifoTransport over the memory of a Host. As ShmTransport, but for the meeting of the ranks: a
/// peer's death is known some time after it, and the heaps of peers are mapped.
class SimulatedTransport final : public FifoTransport {
 public:
  explicit SimulatedTransport(Host& host);
  ~SimulatedTransport() override { leave(); }

  Result<std::vector<std::byte>> listen(const Identity&) override {
    return std::vector<std::byte>();
  }
  Reach reach(const PeerInfo&, const PeerInfo&, std::size_t) const override { return {}; }
  Status connect(const Membership& membership, std::span<const int> peers, std::size_t) override;
  void poll_failures(std::uint64_t waited_ns) noexcept override;
  bool is_lost(int peer) noexcept override { return is_gone(peer); }
  using FifoTransport::fail_all;
  using FifoTransport::leave;

 private:
  bool back(int, std::span<std::byte> part, bool) noexcept override;
  bool locate(std::span<const std::byte> memory, std::uint64_t* offset) noexcept override;
  std::byte* resolve(int peer, const Descriptor& descriptor) noexcept override;
  void corrupt(int peer, const char* what) noexcept override;
  bool is_gone(int peer) const noexcept override;

  Host& host_;
  int rank_ = -1;
  std::vector<bool> noted_; ///< peers whose deaths have been noted
};

/// A rank of a simulated host: its communicator as far as the transport knows it, and the traffic
/// with its peers.
class Rank {
 public:
  Rank(Host& host, int rank);

  int number() const noexcept { return membership_.rank; }
  const Membership& membership() const noexcept { return membership_; }
  CommError& error() noexcept { return error_; }
  SimulatedTransport& transport() noexcept { return transport_; }
  /// Connects to all other ranks. Requires that it succeeds.
  void connect();
  /// Waits for `step()` as an operation does, with the transport's way to sleep.
  template <class Step>
  WaitResult wait(Step&& step, const char* what) {
    return wait_for(step, error_, transport_, what);
  }
  /// Ends all access of peers to this rank's heap, as a communicator does after a failure, and
  /// writes to all of it.
  void revoke_access();

 private:
  Host& host_;
  CommError error_;
  Membership membership_;
  SimulatedTransport transport_;
};

/// Adds a fibre for each rank of a host, which runs `body(rank)`, and runs them all. Requires that
/// each comes to its end, unless it died.
void run_ranks(Host& host, const std::function<void(Rank&)>& body,
               const std::function<void()>& before = {});

} // namespace whorl::simulation
