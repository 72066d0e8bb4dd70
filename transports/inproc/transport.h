#pragma once

#include <memory>

#include "transports/fifo/transport.h"

namespace whorl {

struct InprocSegment;

/// Connects ranks that are threads of one process: FIFOs in private memory, and every source can be
/// published, since every pointer means the same to both.
class InprocTransport final : public FifoTransport {
 public:
  InprocTransport() = default;
  ~InprocTransport() override { leave(); }

  std::string_view name() const noexcept override { return "inproc"; }
  Result<std::vector<std::byte>> listen(const Identity& identity) override;
  Reach reach(const RankCard& self, const RankCard& peer, std::size_t index) const override;
  Status connect(const Membership& membership, std::span<const int> peers,
                 std::size_t index) override;

 private:
  bool prepare(int peer, std::byte* fifo) noexcept override;
  bool locate(std::span<const std::byte> source, std::uint64_t* offset) noexcept override;
  std::byte* resolve(int peer, const Descriptor& descriptor) noexcept override;

  std::shared_ptr<InprocSegment> segment_;
};

} // namespace whorl
