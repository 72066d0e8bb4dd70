// The verbs transport of a build without the headers of libibverbs.
#include "transports/verbs/verbs.h"

namespace whorl {
namespace {

class AbsentTransport final : public Transport {
 public:
  AbsentTransport() : Transport({.name = "verbs"}) {}
  Result<std::vector<std::byte>> listen(const Identity&) override {
    absence_.why = "this whorl was built without it (meson setup -Dverbs=enabled)";
    return std::vector<std::byte>();
  }
  Reach reach(const PeerInfo&, const PeerInfo&, std::size_t) const override { return {}; }
  std::size_t endpoint_bytes(int, std::size_t) const noexcept override { return 0; }
  Status connect(const Membership&, std::span<const int>, std::size_t) override { return {}; }
  Endpoint* endpoint(int, int) noexcept override { return nullptr; }
  TransportMemory memory() const noexcept override { return {}; }
  void block(std::uint64_t max_ns) noexcept override { ClockWaiter().block(max_ns); }
  void notify_peers(const Status&) noexcept override {}
};

} // namespace

std::unique_ptr<Transport> make_verbs_transport(VerbsPlace) {
  return std::make_unique<AbsentTransport>();
}

} // namespace whorl
