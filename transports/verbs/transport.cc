#include "transports/verbs/transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "transports/error_text.h"

namespace whorl {
namespace {

// Costs for the cost model: of a device in hardware, without a switch's time.
constexpr double kAlphaUs = 2.5, kOverheadUs = 0.3;

// Time that the destruction waits for the device. Larger: messages arrive over worse networks.
// Smaller: a rank leaves sooner if its peer does not answer.
constexpr std::uint64_t kLeaveNs = 200'000'000;

} // namespace

std::unique_ptr<Transport> make_verbs_transport(VerbsPlace place) {
  return std::make_unique<VerbsTransport>(std::move(place));
}

VerbsTransport::VerbsTransport(VerbsPlace place, VerbsHost* host)
    : NetworkTransport({.name = "verbs", .slot_bytes = 64 * 1024}, sizeof(verbs::PortAddresses)),
      place_(std::move(place)),
      host_(host) {}

VerbsTransport::~VerbsTransport() {
  if (membership_ != nullptr && !membership_->comm_error->is_set()) {
    ClockWaiter waiter;
    const auto written = [this] {
      read_control();
      return all_written() ? Progress::kDone : Progress::kIdle;
    };
    static_cast<void>(
        wait_until(written, {.timeout_ns = kLeaveNs}, *membership_->comm_error, waiter));
  }
  control_.leave();
  peers_.clear();
  for (const auto& own : own_ports_) {
    own->completions.clear();
    if (own->region != nullptr) own->port.device->api->dereg_mr(own->region);
  }
}

/// Returns whether every message is in the memory of its peer, or never will be.
bool VerbsTransport::all_written() noexcept {
  bool all = true;
  for (const Peer& peer : peers_) {
    for (const Lane& lane : peer.lanes) {
      if (lane.endpoint == nullptr) continue;
      // A connection that has failed writes nothing any more.
      all &= lane.endpoint->flushed() || lane.endpoint->progress() == Progress::kFailed;
    }
  }
  return all;
}

Result<std::vector<std::byte>> VerbsTransport::listen(const Identity&) {
  auto settings = VerbsSettings::from_environment();
  if (!settings.ok()) return settings.status();
  settings_ = *std::move(settings);
  absence_.why = place_.unwanted;
  if (!absence_.why.empty()) return std::vector<std::byte>();
  if (host_ == nullptr) host_ = VerbsHost::instance(&absence_.why);
  if (host_ == nullptr) return std::vector<std::byte>();
  VerbsHost::Hindrances hindrances;
  const std::vector<VerbsPort> ports = host_->ports(settings_, &hindrances);
  if (ports.empty()) {
    absence_ = {hindrances.why, hindrances.fault};
    return std::vector<std::byte>();
  }
  verbs::PortAddresses addresses;
  for (VerbsPort& port : verbs::choose_ports(ports, place_, settings_.rails)) {
    addresses[own_ports_.size()] = port.address;
    own_ports_.push_back(std::make_unique<OwnPort>());
    own_ports_.back()->port = std::move(port);
  }
  auto address = ports_.bind();
  if (!address.ok()) return address;
  const auto bytes = std::as_bytes(std::span(addresses));
  address->insert(address->end(), bytes.begin(), bytes.end());
  return address;
}

std::vector<VerbsPort> VerbsTransport::own_ports() const {
  std::vector<VerbsPort> ports;
  for (const auto& own : own_ports_) ports.push_back(own->port);
  return ports;
}

Reach VerbsTransport::reach(const PeerInfo& self, const PeerInfo& peer, std::size_t index) const {
  const std::vector<verbs::RailPorts> rails = verbs::rails_between(self, peer, index);
  if (rails.empty()) return {};
  const verbs::PortAddresses own = verbs::ports_of(self, index),
                             theirs = verbs::ports_of(peer, index);
  double gb_per_s = 0; // of the rails that share the messages
  for (const verbs::RailPorts& rail : rails) {
    if (rail.spare) continue;
    const int rate = std::max<int>(std::min(own[rail.own].rate, theirs[rail.peers].rate), 1);
    gb_per_s += rate / 80.0;
  }
  return {.reachable = true,
          .alpha_us = kAlphaUs,
          .overhead_us = kOverheadUs,
          .beta_us_per_kib = 1.024 / gb_per_s,
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
  bool armed = false;
  for (const auto& own : own_ports_) {
    if (own->usable) armed |= own->wakeup.arm(own->completions);
  }
  if (armed) return; // what came before has given no event, so look once more
  std::array<epoll_event, 1 + verbs::kMaxRails> events;
  const int count = sys().epoll_wait(epoll_.get(), events, max_ns);
  if (count < 0) sys().sleep_ns(std::min(max_ns, kLookEveryNs));
  if (count <= 0) return;
  for (const auto& own : own_ports_) {
    if (own->usable) own->wakeup.take_events();
  }
}

void VerbsTransport::poll_failures(std::uint64_t waited_ns) noexcept {
  read_control();
  control_.judge_deaths(waited_ns);
  look_for_leavers();
  look_at_ports(waited_ns);
}

/// Reads what peers have told, and finds those that have died.
void VerbsTransport::read_control() noexcept {
  control_.poll(
      [this](int peer, std::span<const std::byte>) {
        find(peer)->left.store(true, std::memory_order_release); // pairs with acquire in has_left()
      },
      [this](int peer, std::span<const std::byte> bytes) { take_word(peer, bytes); });
}

/// Takes the report of a peer that a rail has failed.
void VerbsTransport::take_word(int rank, std::span<const std::byte> bytes) noexcept {
  verbs::RailReport report;
  Peer* const peer = find(rank);
  if (peer == nullptr || bytes.size() != sizeof report) {
    return control_.malformed(rank, "a malformed report of an RDMA connection");
  }
  std::memcpy(&report, bytes.data(), sizeof report);
  if (report.channel >= peer->lanes.size()) {
    return control_.malformed(rank, "a report of an RDMA connection that there is not");
  }
  peer->lanes[report.channel].endpoint->take_report(report);
}

void VerbsTransport::rail_failed(int rank, const verbs::RailReport& report,
                                 const VerbsQueue& queue) noexcept {
  const std::uint32_t bit = std::uint32_t{1} << report.rail;
  if ((find(rank)->reported.fetch_or(bit, std::memory_order_relaxed) & bit) == 0) {
    log(LogLevel::kWarn,
        fmt::format("the RDMA connection of rank {} to {} by {} has failed: {}; messages go on by "
                    "another port",
                    membership_->rank, membership_->describe(rank), queue.port_name(),
                    queue.failure()));
  }
  control_.send_word(rank, std::as_bytes(std::span(&report, 1)));
}

/// Looks at this rank's ports and rails if a wait is long: a device that has no link may go on
/// trying without end. Gives up the rails of ports without link; sets the error if no port has one.
void VerbsTransport::look_at_ports(std::uint64_t waited_ns) noexcept {
  constexpr std::uint64_t kLongNs = 1'000'000'000, kLookEveryNs = 250'000'000;
  if (waited_ns < kLongNs || peers_.empty()) return;
  const std::uint64_t now = sys().now_ns();
  const std::uint64_t looked = ports_looked_ns_.exchange(now, std::memory_order_relaxed);
  if (now - looked < kLookEveryNs) {
    ports_looked_ns_.store(looked, std::memory_order_relaxed);
    return;
  }
  watch_.raise(); // the operation may not use the completions that tell of a failure
  std::size_t without_link = 0;
  for (std::size_t i = 0; i < own_ports_.size(); ++i) {
    if (own_ports_[i]->usable && !has_no_link(*own_ports_[i], now)) continue;
    ++without_link;
    for (Peer& peer : peers_) {
      for (std::size_t rail = 0; rail < peer.rails.size(); ++rail) {
        if (peer.rails[rail].own != i) continue;
        for (Lane& lane : peer.lanes) lane.endpoint->suspect(rail);
      }
    }
  }
  if (without_link < own_ports_.size()) return;
  const auto used = std::find_if(own_ports_.begin(), own_ports_.end(),
                                 [](const auto& own) { return own->usable; });
  const VerbsPort& first = (*used)->port;
  membership_->comm_error->set(
      Status::error(Code::kSystemError,
                    fmt::format("the RDMA port {}:{} of rank {} has lost its link; look at cable "
                                "and switch (ibstat, rdma link)",
                                first.device->name, first.number, membership_->rank)));
}

/// Returns whether a port has had no link for a while.
bool VerbsTransport::has_no_link(OwnPort& own, std::uint64_t now_ns) noexcept {
  // Longer: a link that is interrupted for a moment does no harm. Shorter: a sooner error.
  constexpr std::uint64_t kNoLinkNs = 2'000'000'000;
  // What was seen before this time says nothing about the time in between, when no rank waited.
  constexpr std::uint64_t kForgetNs = 1'500'000'000;
  if (now_ns - own.looked_ns.exchange(now_ns, std::memory_order_relaxed) > kForgetNs) {
    own.no_link_since_ns.store(0, std::memory_order_relaxed);
  }
  ibv_port_attr state{};
  if (own.port.device->query(own.port.number, &state) != 0 || state.state == IBV_PORT_ACTIVE) {
    own.no_link_since_ns.store(0, std::memory_order_relaxed);
    return false;
  }
  std::uint64_t since = 0;
  if (own.no_link_since_ns.compare_exchange_strong(since, now_ns, std::memory_order_relaxed)) {
    return false;
  }
  return now_ns - since >= kNoLinkNs;
}

/// Sets the error if this rank keeps trying to use an endpoint to a rank that has left: all that it
/// has sent was in this rank's memory before it said so. An attempt from before counts as well, so
/// several polls must find one.
void VerbsTransport::look_for_leavers() noexcept {
  constexpr int kPolls = 3;
  for (Peer& peer : peers_) {
    bool stuck = false;
    for (const Lane& lane : peer.lanes) stuck |= lane.endpoint->was_stuck();
    if (!stuck || !has_left(peer.rank) || ++peer.stuck_polls < kPolls) continue;
    membership_->comm_error->set(
        Status::error(Code::kRemoteError, text_of_leaving(*membership_, peer.rank)));
    return;
  }
}

bool VerbsTransport::revoke_access() noexcept {
  bool all = true;
  for (const Peer& peer : peers_) {
    for (const Lane& lane : peer.lanes) all &= lane.endpoint == nullptr || lane.endpoint->close();
  }
  return all;
}

Progress VerbsTransport::connection_failed(int peer, const VerbsQueue& queue) noexcept {
  read_control();
  // Requests to a rank that has left fail; nothing of them was a message that it still needed.
  if (has_left(peer)) return Progress::kIdle;
  const Progress verdict = control_.connection_lost(peer, queue.failure());
  return verdict == Progress::kFailed ? verdict : Progress::kIdle;
}

void VerbsTransport::malformed(int peer, const char* what) noexcept {
  control_.malformed(peer, what);
}

} // namespace whorl
