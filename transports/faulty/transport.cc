#include "transports/faulty/transport.h"

#include <algorithm>
#include <utility>

namespace whorl {
namespace {

bool delays(const FaultySettings& settings) {
  return settings.delay_share > 0 || settings.reorder_ns > 0;
}

/// Returns the traits of a transport whose messages, with these faults, may arrive long after they
/// were sent.
TransportTraits with_faults(TransportTraits traits, const FaultySettings& settings) {
  if (delays(settings)) traits.shares_memory = false;
  return traits;
}

} // namespace

FaultyTransport::FaultyTransport(std::unique_ptr<Transport> below, FaultySettings settings)
    : Transport(with_faults(below->traits(), settings)),
      below_(std::move(below)),
      settings_(std::move(settings)) {}

Result<std::vector<std::byte>> FaultyTransport::listen(const Identity& identity) {
  auto address = below_->listen(identity);
  absence_ = {.why = below_->absence(), .is_a_fault = below_->absence_is_a_fault()};
  return address;
}

Status FaultyTransport::connect(const Membership& membership, std::span<const int> peers,
                                std::size_t index) {
  WHORL_TRY(below_->connect(membership, peers, index));
  injector_.emplace(settings_, membership, *below_);
  channels_ = static_cast<std::size_t>(membership.channels);
  endpoints_.resize(static_cast<std::size_t>(membership.nranks) * channels_);
  for (const int peer : peers) {
    for (int channel = 0; channel < membership.channels; ++channel) {
      endpoints_[static_cast<std::size_t>(peer) * channels_ + static_cast<std::size_t>(channel)] =
          std::make_unique<FaultyEndpoint>(*below_->endpoint(peer, channel), *injector_, peer,
                                           channel);
    }
  }
  return {};
}

Endpoint* FaultyTransport::endpoint(int peer, int channel) noexcept {
  // The transport below knows which peers and channels there are.
  if (below_->endpoint(peer, channel) == nullptr) return nullptr;
  return endpoints_[static_cast<std::size_t>(peer) * channels_ + static_cast<std::size_t>(channel)]
      .get();
}

std::optional<StuckOperation> FaultyTransport::find_stuck(int peer) noexcept {
  auto stuck = below_->find_stuck(peer);
  // In shared memory it has no number of messages, since none is under way; here one may be hidden.
  if (stuck && below_->traits().shares_memory && delays(settings_)) stuck->sent = UINT32_MAX;
  return stuck;
}

void FaultyTransport::block(std::uint64_t max_ns) noexcept {
  // Nothing wakes a rank when the delay of a message has passed.
  constexpr std::uint64_t kShortNs = 100'000;
  below_->block(std::min(max_ns, kShortNs));
}

} // namespace whorl
