#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "node/node.h"
#include "transports/fifo/transport.h"
#include "transports/shm/peer_heap.h"

namespace whorl {

/// Transport between processes of one host: FIFOs in one memfd for each communicator. Sources in
/// the heap of the process (memory/heap.h) are published, others copied. The death of a process is
/// noticed by its pidfd, or by the hang-up of its socket where pidfds are not allowed.
class ShmTransport final : public FifoTransport {
 public:
  /// Makes a transport; `node` holds the segment, and the other objects that the ranks of this host
  /// share.
  explicit ShmTransport(std::shared_ptr<Node> node = std::make_shared<Node>())
      : FifoTransport({.name = "shm", .shares_memory = true}), node_(std::move(node)) {}
  ~ShmTransport() override { leave(); }

  Result<std::vector<std::byte>> listen(const Identity& identity) override;
  Reach reach(const PeerInfo& self, const PeerInfo& peer, std::size_t index) const override;
  Status connect(const Membership& membership, std::span<const int> peers,
                 std::size_t index) override;
  bool is_lost(int peer) noexcept override;
  void poll_failures(std::uint64_t waited_ns) noexcept override;
  /// Returns the memory of the transport together with the board of the node. Any thread.
  TransportMemory memory() const noexcept override;

 private:
  /// A descriptor that becomes readable or hangs up when a process ends.
  struct Watch {
    std::vector<int> ranks; ///< peers in that process
    bool pidfd = false;     ///< true: a pidfd; false: a socket
    std::shared_ptr<const Fd> fd;
  };

  bool back(int peer, std::span<std::byte> part, bool needed) noexcept override;
  bool is_gone(int peer) const noexcept override;
  bool has_ended(int peer, bool surely) const noexcept;
  bool locate(std::span<const std::byte> source, std::uint64_t* offset) noexcept override;
  std::byte* resolve(int peer, const Descriptor& descriptor) noexcept override;

  Status check_memory(std::size_t peers);
  void watch(int rank, std::shared_ptr<const Fd> fd, bool pidfd);
  void look_for_dead() noexcept;

  Fd listener_;
  const std::shared_ptr<Node> node_;
  std::vector<std::shared_ptr<PeerHeap>> heaps_; ///< [rank]
  std::vector<Watch> watches_;
  std::vector<pollfd> polled_; ///< [watch]
  std::atomic_flag looking_;   ///< guard of polled_ and next_look_ns_
  std::uint64_t next_look_ns_ = 0;
  bool has_room_ = false; ///< whether the host has memory to spare, as of connect()
};

} // namespace whorl
