#include "transports/verbs/transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"

namespace whorl {
namespace {

using verbs::Fabric;
using verbs::PortAddress;

// Costs for the cost model: of a device in hardware, without a switch's time.
constexpr double kAlphaUs = 2.5, kOverheadUs = 0.3;

// Time that the destruction waits for the device. Larger: messages arrive over worse networks.
// Smaller: a rank leaves sooner if its peer does not answer.
constexpr std::uint64_t kLeaveNs = 200'000'000;

/// Reads the port at the end of an address; Fabric::kNone if there is none.
PortAddress port_of(const PeerInfo& info, std::size_t index) noexcept {
  PortAddress port;
  if (index >= info.addresses.size()) return port;
  const PeerInfo::Address& field = info.addresses[index];
  if (field.size < sizeof port || field.size > field.bytes.size()) return port;
  std::memcpy(&port, field.bytes.data() + field.size - sizeof port, sizeof port);
  return port;
}

/// Chooses a port: one of the nearest, ranks in turn.
VerbsPort choose(const std::vector<VerbsPort>& ports, const VerbsPlace& place) {
  std::vector<VerbsPort> near;
  if (ports.size() > 1 && place.nearest) {
    const std::vector<std::string> names = place.nearest();
    std::copy_if(ports.begin(), ports.end(), std::back_inserter(near), [&](const VerbsPort& port) {
      return std::find(names.begin(), names.end(), port.device->name) != names.end();
    });
  }
  if (near.empty()) near = ports;
  return near[place.number % near.size()];
}

} // namespace

std::unique_ptr<Transport> make_verbs_transport(VerbsPlace place) {
  return std::make_unique<VerbsTransport>(std::move(place));
}

VerbsTransport::VerbsTransport(VerbsPlace place, VerbsHost* host)
    : Transport({.name = "verbs", .slot_bytes = 64 * 1024}),
      place_(std::move(place)),
      host_(host),
      ports_(sizeof(PortAddress)) {}

VerbsTransport::~VerbsTransport() {
  if (membership_ != nullptr && !membership_->comm_error->is_set()) {
    ClockWaiter waiter;
    const auto written = [this] {
      control_.poll();
      return all_written() ? Progress::kDone : Progress::kIdle;
    };
    static_cast<void>(
        wait_until(written, {.timeout_ns = kLeaveNs}, *membership_->comm_error, waiter));
  }
  control_.leave();
  peers_.clear();
  completions_.clear();
  if (region_ != nullptr) port_.device->api->dereg_mr(region_);
}

/// Returns whether every message is in the memory of its peer, or never will be.
bool VerbsTransport::all_written() noexcept {
  bool all = true;
  for (const Peer& peer : peers_) {
    for (const Lane& lane : peer.lanes) {
      if (lane.endpoint == nullptr || lane.queue->failed()) continue;
      all &= lane.endpoint->flushed();
    }
  }
  return all;
}

Result<std::vector<std::byte>> VerbsTransport::listen(const Identity&) {
  auto settings = VerbsSettings::from_environment();
  if (!settings.ok()) return settings.status();
  settings_ = *std::move(settings);
  if (host_ == nullptr) host_ = VerbsHost::instance(&absence_.why);
  if (host_ == nullptr) return std::vector<std::byte>();
  VerbsHost::Hindrances hindrances;
  const std::vector<VerbsPort> ports = host_->ports(settings_, &hindrances);
  if (ports.empty()) {
    absence_ = {hindrances.why, hindrances.fault};
    return std::vector<std::byte>();
  }
  port_ = choose(ports, place_);
  auto address = ports_.bind();
  if (!address.ok()) return address;
  const auto port = std::as_bytes(std::span(&port_.address, 1));
  address->insert(address->end(), port.begin(), port.end());
  return address;
}

Reach VerbsTransport::reach(const PeerInfo& self, const PeerInfo& peer, std::size_t index) const {
  const PortAddress a = port_of(self, index), b = port_of(peer, index);
  if (a.fabric == Fabric::kNone || a.fabric != b.fabric) return {};
  constexpr std::size_t kSubnetBytes = 8;
  const bool same_subnet = std::equal(a.gid.begin(), a.gid.begin() + kSubnetBytes, b.gid.begin());
  if (a.fabric == Fabric::kInfiniBand && !same_subnet) return {};
  const std::uint32_t mbps = std::max<std::uint32_t>(std::min(a.mbps, b.mbps), 1);
  return {.reachable = true,
          .alpha_us = kAlphaUs,
          .overhead_us = kOverheadUs,
          .beta_us_per_kib = 8 * 1024.0 / mbps,
          .networked = true};
}

std::size_t VerbsTransport::endpoint_bytes(int slots, std::size_t slot_bytes) const noexcept {
  return verbs::EndpointLayout(slots, slot_bytes).bytes();
}

VerbsTransport::Peer* VerbsTransport::find(int rank) noexcept {
  if (rank < 0 || static_cast<std::size_t>(rank) >= peer_of_rank_.size()) return nullptr;
  const int index = peer_of_rank_[static_cast<std::size_t>(rank)];
  return index < 0 ? nullptr : &peers_[static_cast<std::size_t>(index)];
}

Endpoint* VerbsTransport::endpoint(int peer, int channel) noexcept {
  Peer* const found = find(peer);
  if (found == nullptr || channel < 0 || static_cast<std::size_t>(channel) >= found->lanes.size()) {
    return nullptr;
  }
  return found->lanes[static_cast<std::size_t>(channel)].endpoint.get();
}

TransportMemory VerbsTransport::memory() const noexcept {
  if (!memory_) return {};
  return {.reserved = memory_.bytes(),
          .fifos = memory_.bytes(), // registered memory is in memory
          .fixed = peers_.size() * sizeof(Peer)};
}

void VerbsTransport::block(std::uint64_t max_ns) noexcept {
  constexpr std::uint64_t kLookEveryNs = 200'000;
  if (!epoll_.valid()) return sys().sleep_ns(std::min(max_ns, kLookEveryNs));
  if (wakeup_.arm(completions_)) return; // what came before has given no event, so look once more
  std::array<epoll_event, 2> events;
  const int count = sys().epoll_wait(epoll_.get(), events, max_ns);
  if (count > 0) wakeup_.take_events();
  if (count < 0) sys().sleep_ns(std::min(max_ns, kLookEveryNs));
}

void VerbsTransport::poll_failures(std::uint64_t waited_ns) noexcept {
  static_cast<void>(waited_ns);
  control_.poll();
  look_for_leavers();
  look_at_port(waited_ns);
}

/// Sets the error if a wait is long and this rank's port has had no link for a while: a device that
/// has none may go on trying without end.
void VerbsTransport::look_at_port(std::uint64_t waited_ns) noexcept {
  constexpr std::uint64_t kLongNs = 1'000'000'000, kLookEveryNs = 250'000'000;
  // Longer: a link that is interrupted for a moment does no harm. Shorter: a sooner error.
  constexpr std::uint64_t kNoLinkNs = 2'000'000'000;
  if (waited_ns < kLongNs || peers_.empty()) return;
  const std::uint64_t now = sys().now_ns();
  const std::uint64_t looked = port_looked_ns_.exchange(now, std::memory_order_relaxed);
  if (now - looked < kLookEveryNs) {
    port_looked_ns_.store(looked, std::memory_order_relaxed);
    return;
  }
  ibv_port_attr state{};
  if (port_.device->query(port_.number, &state) != 0 || state.state == IBV_PORT_ACTIVE) {
    no_link_since_ns_.store(0, std::memory_order_relaxed);
    return;
  }
  std::uint64_t none = 0;
  if (no_link_since_ns_.compare_exchange_strong(none, now, std::memory_order_relaxed)) return;
  if (now - none < kNoLinkNs) return;
  membership_->comm_error->set(
      Status::error(Code::kSystemError,
                    fmt::format("the RDMA port {}:{} of rank {} has lost its link; look at cable "
                                "and switch (ibstat, rdma link)",
                                port_.device->name, port_.number, membership_->rank)));
}

/// Sets the error if this rank keeps trying to use an endpoint to a rank that has left: all that it
/// has sent was in this rank's memory before it said so. An attempt from before counts as well, so
/// several polls must find one.
void VerbsTransport::look_for_leavers() noexcept {
  constexpr int kPolls = 3;
  for (Peer& peer : peers_) {
    bool stuck = false;
    for (const Lane& lane : peer.lanes) stuck |= lane.endpoint->was_stuck();
    if (!stuck || !control_.said_goodbye(peer.rank) || ++peer.stuck_polls < kPolls) continue;
    membership_->comm_error->set(
        Status::error(Code::kRemoteError,
                      fmt::format("{} has destroyed its communicator while rank {} waits for it",
                                  membership_->describe(peer.rank), membership_->rank)));
    return;
  }
}

void VerbsTransport::notify_peers(const Status& comm_error) noexcept {
  control_.notify_peers(comm_error);
}

bool VerbsTransport::revoke_access() noexcept {
  for (Peer& peer : peers_) {
    for (Lane& lane : peer.lanes) {
      if (lane.queue != nullptr) lane.queue->close();
    }
  }
  return true;
}

Progress VerbsTransport::connection_failed(int peer, const VerbsQueue& queue) noexcept {
  control_.poll();
  // Requests to a rank that has left fail; nothing of them was a message that it still needed.
  if (control_.said_goodbye(peer)) return Progress::kIdle;
  return control_.connection_lost(peer, queue.failure());
}

void VerbsTransport::malformed(int peer, const char* what) noexcept {
  control_.malformed(peer, what);
}

} // namespace whorl
