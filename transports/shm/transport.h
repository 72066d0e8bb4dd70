#pragma once

#include <memory>
#include <vector>

#include "base/shm_segment.h"
#include "node/fd_mailbox.h"
#include "transports/fifo/transport.h"
#include "transports/shm/peer_heap.h"

namespace whorl {

/// Connects ranks in different processes of one host: FIFOs in one memfd for each communicator.
/// Sources in the heap of the process (heap.h) are published, others copied. The death of a process
/// is noticed by its pidfd, or by the hang-up of its socket where pidfds are not allowed.
class ShmTransport final : public FifoTransport {
 public:
  ShmTransport() = default;
  ~ShmTransport() override { leave(); }

  std::string_view name() const noexcept override { return "shm"; }
  Result<std::vector<std::byte>> listen(const Identity& identity) override;
  Reach reach(const RankCard& self, const RankCard& peer, std::size_t index) const override;
  Status connect(const Membership& membership, std::span<const int> peers,
                 std::size_t index) override;
  void look_around(std::uint64_t waited_ns) noexcept override;
  std::span<std::byte> board() noexcept override {
    if (segment_.data() == nullptr) return {};
    return {segment_.data() + layout().board_offset(), layout().board_bytes()};
  }
  FdMailbox* mailbox() noexcept override { return &mailbox_; }

 private:
  /// Something that becomes readable or hangs up when a process ends.
  struct Watch {
    std::vector<int> ranks; ///< peers in that process
    bool pidfd = false;     ///< else a socket
    Fd fd;
    int hang_ups = 0; ///< looks at which the socket was found hung up
  };

  bool prepare(int peer, std::byte* fifo) noexcept override;
  bool is_gone(int peer) const noexcept override;
  bool locate(std::span<const std::byte> source, std::uint64_t* offset) noexcept override;
  std::byte* resolve(int peer, const Descriptor& descriptor) noexcept override;

  Status check_memory(std::size_t peers) const;
  void watch(int rank, Fd fd, bool pidfd);
  void look_for_dead() noexcept;

  Fd listener_;
  ShmSegment segment_;
  FdMailbox mailbox_;                            ///< without boxes where no devices are shared
  std::vector<std::shared_ptr<PeerHeap>> heaps_; ///< [rank]
  std::vector<Watch> watches_;
  std::vector<pollfd> polled_; ///< [watch]
  std::atomic_flag looking_;   ///< guards hang_ups, polled_ and next_look_ns_
  std::uint64_t next_look_ns_ = 0;
};

} // namespace whorl
