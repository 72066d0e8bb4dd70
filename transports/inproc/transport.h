#pragma once

#include <memory>

#include "transports/fifo/transport.h"

namespace whorl {

struct InprocSegment;

/// Transport between ranks that are threads of one process: FIFOs in memory of the process, and
/// every source can be published, since pointers are valid for both ranks.
class InprocTransport final : public FifoTransport {
 public:
  InprocTransport() : FifoTransport({.name = "inproc", .shares_memory = true}) {}
  ~InprocTransport() override { leave(); }

  Result<std::vector<std::byte>> listen(const Identity& identity) override;
  Reach reach(const PeerInfo& self, const PeerInfo& peer, std::size_t index) const override;
  Status connect(const Membership& membership, std::span<const int> peers,
                 std::size_t index) override;

 private:
  bool back(int peer, std::span<std::byte> part, bool needed) noexcept override;
  bool locate(std::span<const std::byte> source, std::uint64_t* offset) noexcept override;
  std::byte* resolve(int peer, const Descriptor& descriptor) noexcept override;

  std::shared_ptr<InprocSegment> segment_;
};

} // namespace whorl
