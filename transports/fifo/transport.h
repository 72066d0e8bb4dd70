#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "transports/fifo/endpoint.h"
#include "transports/fifo/layout.h"
#include "transports/transport.h"

namespace whorl {

/// Common part of inproc and shm: endpoints, sleeping and waking, the communicator's error,
/// leaving. The derived class gets the memory, calls attach(), and calls leave() in its destructor.
class FifoTransport : public Transport, protected FifoHost {
 public:
  Endpoint* endpoint(int peer, int channel) noexcept override;
  void notify_peers(const Status& comm_error) noexcept override;
  /// Sleeps until a peer rings. The first of consecutive calls only sets `sleeping` and returns, so
  /// that the caller polls once more before the sleep.
  void block(std::uint64_t max_ns) noexcept override;
  void poll_failures(std::uint64_t waited_ns) noexcept override;
  void tell_stuck(const StuckOperation& operation,
                  std::span<const std::uint32_t> sent) noexcept override;
  std::optional<StuckOperation> find_stuck(int peer) noexcept override;
  std::size_t endpoint_bytes(int slots, std::size_t slot_bytes) const noexcept override {
    return FifoShape(static_cast<std::size_t>(slots), slot_bytes, false).size;
  }
  TransportMemory memory() const noexcept override;
  std::uint64_t zero_copy_messages() const noexcept override;
  bool revoke_access() noexcept override;
  bool is_lost(int peer) noexcept override {
    return mine_ != nullptr && (has_left(peer) || has_died(peer));
  }

 protected:
  using Transport::Transport;
  /// Returns the costs of a link through memory: those between cores that share a cache, those
  /// between others, or, unless both ranks are known to be bound, the geometric mean
  /// (docs/selection.md).
  static Reach reach_through_memory(const RankPlace& self, const RankPlace& peer);
  /// Counts bytes of a FIFO of this rank that have been backed with memory.
  void count_backed(std::size_t bytes) noexcept {
    backed_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  /// Joins the segment at `memory`. `members` are the ranks that share the segment, in
  /// ascending order; they include this rank and all of `peers`. The segment outlives leave().
  void attach(const Membership& membership, std::byte* memory, const SegmentLayout& layout,
              std::vector<int> members, std::span<const int> peers, bool zero_copy);
  /// Waits until all `peers` have attached; the error names those that have not. `waiter` may
  /// notice that one of them died.
  Status wait_for_peers(std::uint64_t deadline_ns, Waiter& waiter);
  /// Marks this rank as having left in good order. Idempotent; does not wait.
  void leave() noexcept;
  /// Returns whether a peer certainly accesses nothing any more.
  virtual bool is_gone(int peer) const noexcept { return has_left(peer); }
  /// Returns whether a peer has left in good order.
  bool has_left(int peer) const noexcept;
  /// Tells the other ranks that the process of a peer has ended: some do not watch it.
  void tell_death(int peer) noexcept;
  /// Records that the process of a peer has ended; `sign` completes "rank 3 (…) …". The
  /// death becomes the error of all ranks as soon as this rank waits for a message of the peer, or
  /// has waited for long: the peer may have done all that the others need.
  void note_death(int peer, const char* sign) noexcept;
  /// Sets the error here and for all ranks on this segment.
  void fail_all(const Status& error) noexcept;

  void corrupt(int peer, const char* what) noexcept override;

  const Membership& membership() const noexcept { return *membership_; }
  const SegmentLayout& layout() const noexcept { return layout_; }
  std::span<const int> members() const noexcept { return members_; }
  std::span<const int> peers() const noexcept { return peers_; }

 private:
  SegmentHeader& header() const noexcept;
  RankState& state_of(int rank) const noexcept;
  void publish_error(std::string_view text) noexcept;
  void poll_error() noexcept;
  void look_for_leavers(std::uint64_t waited_ns) noexcept;
  bool needs(int peer) noexcept;
  bool has_died(int peer) const noexcept;

  /// Facts about a peer that sends nothing any more.
  struct Departure {
    std::atomic<const char*> sign{nullptr};    ///< sign of a death; null: alive, or left
    std::atomic<std::uint64_t> since_ns{0};    ///< time at which the death was noticed
    std::atomic<std::uint32_t> stuck_looks{0}; ///< number of polls that found an endpoint stuck
  };

  const Membership* membership_ = nullptr;
  std::byte* memory_ = nullptr;
  SegmentLayout layout_;
  std::vector<int> members_;
  std::vector<int> peers_;
  std::vector<int> local_ranks_; ///< index in members_ by rank; −1: no member
  std::vector<std::unique_ptr<FifoEndpoint>> endpoints_; ///< endpoints by [rank][channel]
  RankState* mine_ = nullptr;
  std::atomic<bool> attached_{false};
  std::atomic<std::uint32_t> heard_{0};     ///< doorbell.rings before `sleeping` was set
  std::unique_ptr<Departure[]> departures_; ///< [rank]
  std::atomic<int> deaths_{0};
  std::atomic<std::uint32_t> unfinished_error_polls_{0};
  std::atomic<std::size_t> backed_bytes_{0}; ///< counter, which orders no other data
  std::uint64_t moved_ = 0;                  ///< count of bytes, see FifoEndpoint::Ends::moved
};

/// Returns the ranks of `membership` for which `belongs(PeerInfo)` holds, ascending.
template <class Belongs>
std::vector<int> members_of(const Membership& membership, Belongs&& belongs) {
  std::vector<int> members;
  for (int rank = 0; rank < membership.nranks; ++rank) {
    if (belongs(membership.info(rank))) members.push_back(rank);
  }
  return members;
}
/// Returns the layout of the segment of `members`; an error if a peer is no member: connect() was
/// called for a rank that reach() excludes.
Result<SegmentLayout> layout_for(const Membership& membership, std::span<const int> members,
                                 std::span<const int> peers);

} // namespace whorl
