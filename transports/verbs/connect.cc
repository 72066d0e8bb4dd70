// How VerbsTransport makes its connections: sockets first, then memory and queues, of which ranks
// tell each other over the sockets.
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>

#include "base/bytes.h"
#include "base/descriptor_error.h"
#include "base/log.h"
#include "net/address.h"
#include "transports/control/exchange.h"
#include "transports/verbs/errors.h"
#include "transports/verbs/transport.h"

namespace whorl {

using verbs::EndpointAddress;
using verbs::EndpointLayout;

Status VerbsTransport::connect(const Membership& membership, std::span<const int> peers,
                               std::size_t index) {
  membership_ = &membership;
  Result<std::vector<MeshLink>> links = ports_.connect(membership, peers, index, {});
  if (!links.ok()) return links.status();
  WHORL_TRY(make_memory(peers.size()));
  make_queues(peers, index);
  WHORL_TRY(exchange(*links));
  epoll_.reset(sys().epoll_create());
  WHORL_TRY(control_.adopt(membership, *links, "RDMA"));
  int error = epoll_.get();
  if (error >= 0) error = sys().epoll_add(epoll_.get(), control_.epoll(), EPOLLIN | EPOLLET, 0);
  for (const auto& own : own_ports_) {
    if (error < 0 || !own->usable) continue;
    error = sys().epoll_add(epoll_.get(), own->wakeup.descriptor(), EPOLLIN, 1);
  }
  if (error < 0) {
    return Status::error(
        Code::kSystemError,
        fmt::format("the RDMA connections cannot be watched: {}", descriptor_error(error)));
  }
  return {};
}

/// Allocates the memory of all endpoints, and makes what the connections by each port share. Ports
/// for which that fails are left out, if there are others.
Status VerbsTransport::make_memory(std::size_t peers) {
  const EndpointLayout layout(membership_->slots, membership_->slot_bytes);
  const std::size_t endpoints = peers * static_cast<std::size_t>(membership_->channels);
  auto memory = SlotMemory::map(layout.bytes() * endpoints, SlotMemory::Backing::kWhole,
                                fmt::format("{} RDMA connections", endpoints));
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  Status first_error;
  bool any = false;
  for (const auto& own : own_ports_) {
    Status made = prepare(*own, peers);
    own->usable = made.ok();
    any |= own->usable;
    if (made.ok()) continue;
    own->completions.clear(); // gives queues back
    if (first_error.ok()) first_error = std::move(made);
  }
  if (!any) return first_error;
  if (!first_error.ok()) log(LogLevel::kWarn, first_error.message() + "; other ports are used");
  return {};
}

/// Makes what the connections by one port share.
Status VerbsTransport::prepare(OwnPort& own, std::size_t peers) {
  VerbsDevice& device = *own.port.device;
  const VerbsQueue::Depth depth =
      VerbsEndpoint::queue_depth(EndpointLayout(membership_->slots, membership_->slot_bytes));
  WHORL_TRY(own.wakeup.create(device));
  for (int channel = 0; channel < membership_->channels; ++channel) {
    own.completions.push_back(std::make_unique<VerbsCompletions>(device));
    // When a queue fails, each of its requests gets a completion.
    WHORL_TRY(own.completions.back()->create(peers * (depth.sends + depth.receives),
                                             own.wakeup.channel()));
  }
  own.region = device.api->reg_mr(device.domain, memory_.data(), memory_.bytes(),
                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (own.region != nullptr) return {};
  return Status::error(Code::kSystemError,
                       verbs::describe_registration(memory_.bytes(), -errno, device.name));
}

void VerbsTransport::make_queues(std::span<const int> peers, std::size_t index) {
  const EndpointLayout layout(membership_->slots, membership_->slot_bytes);
  for (const auto& own : own_ports_) {
    if (!own->usable) continue;
    for (const auto& completions : own->completions) watch_.add(*completions);
  }
  peers_ = std::vector<Peer>(peers.size());
  peer_of_rank_.assign(static_cast<std::size_t>(membership_->nranks), -1);
  std::byte* memory = memory_.data();
  for (std::size_t i = 0; i < peers.size(); ++i) {
    Peer& peer = peers_[i];
    peer.rank = peers[i];
    peer_of_rank_[static_cast<std::size_t>(peer.rank)] = static_cast<int>(i);
    const PeerInfo& info = membership_->info(peer.rank);
    peer.ports = verbs::ports_of(info, index);
    peer.rails = verbs::rails_between(membership_->info(membership_->rank), info, index);
    peer.lanes.resize(static_cast<std::size_t>(membership_->channels));
    for (std::size_t channel = 0; channel < peer.lanes.size(); ++channel) {
      make_lane(peer, channel, memory);
      memory += layout.bytes();
    }
  }
}

/// Makes an endpoint, with a queue for each rail; notes in Peer::missing which there is none for.
void VerbsTransport::make_lane(Peer& peer, std::size_t channel, std::byte* memory) {
  const EndpointLayout layout(membership_->slots, membership_->slot_bytes);
  Lane& lane = peer.lanes[channel];
  lane.own.memory = reinterpret_cast<std::uint64_t>(memory);
  std::vector<VerbsRail> rails;
  for (std::size_t i = 0; i < peer.rails.size(); ++i) {
    OwnPort& own = *own_ports_[peer.rails[i].own];
    VerbsQueue& queue = *lane.queues.emplace_back(std::make_unique<VerbsQueue>(*own.port.device));
    VerbsRail& rail = rails.emplace_back(VerbsRail{.queue = &queue, .spare = peer.rails[i].spare});
    if (!own.usable) {
      peer.missing |= std::uint32_t{1} << i;
      continue;
    }
    VerbsCompletions& completions = *own.completions[channel];
    Status made = queue.create(completions.get(), completions.add(&queue),
                               VerbsEndpoint::queue_depth(layout), own.port, settings_);
    if (!made.ok()) {
      peer.missing |= std::uint32_t{1} << i;
      peer.why_missing = std::move(made);
      continue;
    }
    verbs::RailAddress& address = lane.own.rails[i];
    address.queue = queue.number();
    address.key = own.region->rkey;
    if (sys().random_bytes(std::as_writable_bytes(std::span(&address.first, 1))) < 0) {
      address.first = address.queue;
    }
    rail.completions = &completions;
    rail.regions = own.port.device->regions.get();
    rail.key = own.region->lkey;
  }
  VerbsJudge& judge = *this; // the base is private
  lane.endpoint = std::make_unique<VerbsEndpoint>(peer.rank, channel, layout, memory,
                                                  std::move(rails), judge, watch_);
}

/// Tells all peers the addresses of this rank's queues, connects to theirs, and waits until all of
/// them have done so: a device drops what comes before. Rails that cannot be connected on one side
/// are left out, if others can.
Status VerbsTransport::exchange(std::span<MeshLink> links) {
  std::vector<std::vector<std::byte>> mine;
  for (const MeshLink& link : links) {
    ByteWriter out;
    for (const Lane& lane : find(link.rank)->lanes) out.put(lane.own);
    mine.push_back(out.bytes());
  }
  const auto theirs = exchange_blobs(*membership_, links, mine);
  if (!theirs.ok()) return theirs.status();
  for (std::size_t i = 0; i < links.size(); ++i) {
    Peer& peer = *find(links[i].rank);
    WHORL_TRY(join(peer, (*theirs)[i]));
    ByteWriter out;
    out.put(peer.joined);
    mine[i] = out.bytes();
  }
  const auto joined = exchange_blobs(*membership_, links, mine);
  if (!joined.ok()) return joined.status();
  for (std::size_t i = 0; i < links.size(); ++i) {
    Peer& peer = *find(links[i].rank);
    ByteReader in((*joined)[i]);
    const std::uint32_t both = peer.joined & in.get<std::uint32_t>();
    if (both == 0) {
      return Status::error(
          Code::kSystemError,
          fmt::format("rank {} and {} cannot be connected by the same RDMA ports; WHORL_IB_HCA "
                      "chooses ports",
                      membership_->rank, membership_->describe(peer.rank)));
    }
    for (Lane& lane : peer.lanes) lane.endpoint->keep_rails(both);
  }
  return {};
}

/// Connects the queues to one peer.
Status VerbsTransport::join(Peer& peer, std::span<const std::byte> addresses) {
  const auto remote = verbs::read_endpoints(addresses, peer.lanes.size());
  if (!remote) {
    return Status::error(Code::kRemoteError,
                         fmt::format("{} has sent addresses of RDMA queues that are malformed; do "
                                     "all ranks use the same release of whorl?",
                                     membership_->describe(peer.rank)));
  }
  for (std::size_t channel = 0; channel < peer.lanes.size(); ++channel) {
    peer.lanes[channel].endpoint->set_remote((*remote)[channel]);
  }
  Status first_error = peer.why_missing;
  for (std::size_t rail = 0; rail < peer.rails.size(); ++rail) {
    const bool has_no_queue =
        (peer.missing >> rail & 1) != 0 ||
        std::any_of(remote->begin(), remote->end(), [rail](const EndpointAddress& address) {
          return address.rails[rail].queue == 0;
        });
    if (has_no_queue) continue;
    Status joined = join_rail(peer, rail, *remote);
    if (joined.ok()) {
      peer.joined |= std::uint32_t{1} << rail;
    } else if (first_error.ok()) {
      first_error = std::move(joined);
    }
  }
  if (peer.joined == 0 && !first_error.ok()) return first_error;
  if (!first_error.ok()) log(LogLevel::kWarn, first_error.message() + "; other ports are used");
  return {};
}

/// Connects the queues of one rail.
Status VerbsTransport::join_rail(Peer& peer, std::size_t rail,
                                 std::span<const EndpointAddress> remote) noexcept {
  const verbs::RailPorts& ports = peer.rails[rail];
  const VerbsPort& own = own_ports_[ports.own]->port;
  for (std::size_t channel = 0; channel < peer.lanes.size(); ++channel) {
    Lane& lane = peer.lanes[channel];
    const int result =
        lane.endpoint->connect(rail, lane.own.rails[rail], remote[channel].rails[rail],
                               peer.ports[ports.peers], own, settings_);
    if (result == 0) continue;
    return Status::error(
        Code::kSystemError,
        fmt::format("rank {} cannot connect to {} by the RDMA port {}:{}: {}", membership_->rank,
                    membership_->describe(peer.rank), own.device->name, own.number,
                    verbs::describe_connecting(result)));
  }
  return {};
}

} // namespace whorl
