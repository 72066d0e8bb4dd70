// How VerbsTransport makes its connections: sockets first, then memory and queues, of which ranks
// tell each other over the sockets.
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.h"
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
  WHORL_TRY(make_queues(peers, index));
  WHORL_TRY(exchange(*links));
  epoll_.reset(sys().epoll_create());
  WHORL_TRY(control_.adopt(membership, *links, "RDMA"));
  if (!epoll_.valid() ||
      sys().epoll_add(epoll_.get(), control_.epoll(), EPOLLIN | EPOLLET, 0) < 0 ||
      sys().epoll_add(epoll_.get(), wakeup_.descriptor(), EPOLLIN, 1) < 0) {
    return Status::error(Code::kSystemError,
                         "epoll_create failed; raise the limit on open files (ulimit -n)");
  }
  return {};
}

/// Allocates and registers the memory of all endpoints.
Status VerbsTransport::make_memory(std::size_t peers) {
  const EndpointLayout layout(membership_->slots, membership_->slot_bytes);
  const std::size_t endpoints = peers * static_cast<std::size_t>(membership_->channels);
  auto memory = SlotMemory::map(layout.bytes() * endpoints, SlotMemory::Backing::kWhole,
                                fmt::format("{} RDMA connections", endpoints));
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  region_ = port_.device->api->reg_mr(port_.device->domain, memory_.data(), memory_.bytes(),
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (region_ != nullptr) return {};
  return Status::error(Code::kSystemError,
                       verbs::describe_registration(memory_.bytes(), -errno, port_.device->name));
}

Status VerbsTransport::make_queues(std::span<const int> peers, std::size_t index) {
  const EndpointLayout layout(membership_->slots, membership_->slot_bytes);
  const auto channels = static_cast<std::size_t>(membership_->channels);
  const VerbsQueue::Depth depth = VerbsEndpoint::queue_depth(layout);
  WHORL_TRY(wakeup_.create(*port_.device));
  for (std::size_t channel = 0; channel < channels; ++channel) {
    completions_.push_back(std::make_unique<VerbsCompletions>(*port_.device));
    // When a queue fails, each of its requests gets a completion.
    WHORL_TRY(completions_.back()->create(peers.size() * (depth.sends + depth.receives),
                                          wakeup_.channel()));
  }
  peers_ = std::vector<Peer>(peers.size());
  peer_of_rank_.assign(static_cast<std::size_t>(membership_->nranks), -1);
  std::byte* memory = memory_.data();
  for (std::size_t i = 0; i < peers.size(); ++i) {
    Peer& peer = peers_[i];
    peer.rank = peers[i];
    peer_of_rank_[static_cast<std::size_t>(peer.rank)] = static_cast<int>(i);
    const PeerInfo::Address& address = membership_->info(peer.rank).addresses[index];
    std::memcpy(&peer.port, address.bytes.data() + address.size - sizeof peer.port,
                sizeof peer.port); // reach() has found it there
    peer.lanes.resize(channels);
    for (std::size_t channel = 0; channel < channels; ++channel, memory += layout.bytes()) {
      WHORL_TRY(make_lane(peer, channel, memory));
    }
  }
  return {};
}

Status VerbsTransport::make_lane(Peer& peer, std::size_t channel, std::byte* memory) {
  const EndpointLayout layout(membership_->slots, membership_->slot_bytes);
  VerbsCompletions& completions = *completions_[channel];
  Lane& lane = peer.lanes[channel];
  lane.queue = std::make_unique<VerbsQueue>(*port_.device);
  WHORL_TRY(lane.queue->create(completions.get(), completions.add(lane.queue.get()),
                               VerbsEndpoint::queue_depth(layout), port_, settings_));
  lane.own.queue = lane.queue->number();
  lane.own.key = region_->rkey;
  lane.own.memory = reinterpret_cast<std::uint64_t>(memory);
  if (sys().random_bytes(std::as_writable_bytes(std::span(&lane.own.first, 1))) < 0) {
    lane.own.first = lane.own.queue;
  }
  VerbsJudge& judge = *this; // the base is private
  lane.endpoint =
      std::make_unique<VerbsEndpoint>(peer.rank, layout, memory, region_->lkey,
                                      *port_.device->regions, *lane.queue, completions, judge);
  return {};
}

/// Tells all peers the addresses of this rank's queues, connects to theirs, and waits until all of
/// them have done so: a device drops what comes before.
Status VerbsTransport::exchange(std::span<const MeshLink> links) {
  std::vector<std::vector<std::byte>> mine, nothing;
  for (const MeshLink& link : links) {
    ByteWriter out;
    for (const Lane& lane : find(link.rank)->lanes) out.put(lane.own);
    mine.push_back(out.bytes());
    nothing.emplace_back();
  }
  const auto theirs = exchange_blobs(*membership_, links, mine);
  if (!theirs.ok()) return theirs.status();
  for (std::size_t i = 0; i < links.size(); ++i) {
    WHORL_TRY(join(*find(links[i].rank), (*theirs)[i]));
  }
  return exchange_blobs(*membership_, links, nothing).status();
}

/// Connects the queues to one peer.
Status VerbsTransport::join(Peer& peer, std::span<const std::byte> addresses) {
  const std::string who = membership_->describe(peer.rank);
  ByteReader in(addresses);
  for (Lane& lane : peer.lanes) {
    const auto remote = in.get<EndpointAddress>();
    if (!in.ok() || remote.queue > 0xffffff) {
      return Status::error(Code::kRemoteError,
                           fmt::format("{} has sent addresses of RDMA queues that are malformed; "
                                       "do all ranks use the same release of whorl?",
                                       who));
    }
    if (const int result = lane.endpoint->connect(lane.own, remote, peer.port, port_, settings_);
        result < 0) {
      return Status::error(
          Code::kSystemError,
          fmt::format("rank {} cannot connect to {} by the RDMA port {}:{}: {}", membership_->rank,
                      who, port_.device->name, port_.number, verbs::describe_connecting(result)));
    }
  }
  return {};
}

} // namespace whorl
