#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "transports/fifo/endpoint.h"
#include "transports/fifo/layout.h"
#include "transports/transport.h"

namespace whorl {

/// What inproc and shm share once the memory is there: endpoints, sleeping and waking, the common
/// verdict, leaving. The derived class gets the memory, calls attach(), and calls leave() in its
/// destructor.
class FifoTransport : public Transport, protected FifoHost {
 public:
  Endpoint* endpoint(int peer, int channel) noexcept override;
  void tell(const Status& verdict) noexcept override;
  /// Sleeps until a peer rings. The first call of a row only asks to be rung and returns, so that
  /// the caller looks once more before it sleeps.
  void nap(std::uint64_t max_ns) noexcept override;
  void look_around(std::uint64_t waited_ns) noexcept override;
  std::size_t endpoint_bytes(int slots, std::size_t slot_bytes) const noexcept override {
    return fifo_size(static_cast<std::size_t>(slots), slot_bytes);
  }
  TransportMemory memory() const noexcept override;
  bool withdraw_memory() noexcept override;

 protected:
  /// A FIFO of this rank has got memory.
  void count_backed() noexcept { backed_fifos_.fetch_add(1, std::memory_order_relaxed); }
  /// Takes this rank's place in the segment at `memory`. `members` are the ranks that share it, in
  /// ascending order; they include this rank and all of `peers`. The segment outlives leave().
  void attach(const Membership& membership, std::byte* memory, const SegmentLayout& layout,
              std::vector<int> members, std::span<const int> peers, bool zero_copy);
  /// Waits until all `peers` have attached; the error names those that have not. `napper` may
  /// notice that one of them died.
  Status wait_for_peers(std::uint64_t deadline_ns, Napper& napper);
  /// Marks this rank as gone, orderly. Idempotent; waits for nobody.
  void leave() noexcept;
  /// Whether a peer can certainly do nothing any more.
  virtual bool is_gone(int peer) const noexcept { return has_left(peer); }
  /// Whether a peer has gone orderly.
  bool has_left(int peer) const noexcept;
  /// Raises the verdict here and for everybody on this segment.
  void fail_all(const Status& error) noexcept;

  void corrupt(int peer, const char* what) noexcept override;

  const Membership& membership() const noexcept { return *membership_; }
  const SegmentLayout& layout() const noexcept { return layout_; }
  std::span<const int> members() const noexcept { return members_; }
  std::span<const int> peers() const noexcept { return peers_; }

 private:
  SegmentHeader& header() const noexcept;
  Place& place_of(int rank) const noexcept;
  void publish_verdict(std::string_view text) noexcept;
  void look_for_verdict() noexcept;
  void look_for_leavers() noexcept;

  const Membership* membership_ = nullptr;
  std::byte* memory_ = nullptr;
  SegmentLayout layout_;
  std::vector<int> members_;
  std::vector<int> peers_;
  std::vector<int> place_of_rank_;                       ///< −1: no member
  std::vector<std::unique_ptr<FifoEndpoint>> endpoints_; ///< [rank][channel]
  Place* mine_ = nullptr;
  std::atomic<bool> attached_{false};
  std::atomic<std::uint32_t> heard_{0}; ///< mine_->doorbell.rings before it was armed
  /// [rank] looks at which an endpoint to a rank that has left was found stuck.
  std::unique_ptr<std::atomic<std::uint32_t>[]> stuck_looks_;
  std::atomic<std::uint32_t> unfinished_verdict_looks_{0};
  std::atomic<std::size_t> backed_fifos_{0}; ///< carries no other data
};

/// The ranks of `membership` for which `belongs(card)` holds, ascending.
template <class Belongs>
std::vector<int> members_of(const Membership& membership, Belongs&& belongs) {
  std::vector<int> members;
  for (int rank = 0; rank < membership.nranks; ++rank) {
    if (belongs(membership.cards[static_cast<std::size_t>(rank)])) members.push_back(rank);
  }
  return members;
}
/// Refuses peers that are no members: connect() was asked for ranks that reach() denies.
Status check_members(const Membership& membership, std::span<const int> members,
                     std::span<const int> peers);

} // namespace whorl
