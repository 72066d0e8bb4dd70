#include "comm/rank_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "base/hash.h"
#include "base/log.h"
#include "base/params.h"
#include "comm/place.h"
#include "device/staged/stream.h"
#include "topology/host.h"
#include "tuning/memory_budget.h"

namespace whorl {
namespace {

constexpr int kDefaultSlots = 16;

std::uint64_t hash_of(const std::vector<std::string>& names) {
  Hash hash;
  for (const std::string& name : names) hash.mix(name + ",");
  return hash.value();
}

} // namespace

Result<PeerInfo> make_peer_info(Setup& setup, const Identity& identity, int rank) {
  PeerInfo info;
  info.rank = static_cast<std::uint32_t>(rank);
  info.version = kWireVersion;
  info.transports = hash_of(setup.options.transports);
  info.slots = static_cast<std::uint32_t>(setup.options.slots);
  info.slot_bytes = static_cast<std::uint32_t>(setup.options.slot_bytes);
  info.channels = static_cast<std::uint32_t>(setup.options.max_channels) + 1;
  info.memory_budget = setup.options.memory_budget;
  const auto device_ipc = param_bool(Param::kDeviceIpc);
  if (!device_ipc.ok()) return device_ipc.status();
  info.device_peers = *device_ipc && devices_possible() ? 1 : 0;
  info.encrypts = setup.options.encrypts ? 1 : 0;
  describe_local_host(info);
  const auto place = describe_place();
  if (!place.ok()) return place.status();
  info.place = *place;
  WHORL_TRY(enter_switches(info.host_name.data(), info.place));
  for (std::size_t i = 0; i < setup.transports.size(); ++i) {
    const auto address = setup.transports[i]->listen(identity);
    if (!address.ok()) {
      return address.status().with_context(
          fmt::format("the {} transport cannot be reached", setup.transports[i]->traits().name));
    }
    if (const std::string& why = setup.transports[i]->absence(); !why.empty()) {
      log(LogLevel::kInfo, fmt::format("rank {} does without the transport {}: {}", rank,
                                       setup.transports[i]->traits().name, why));
    }
    info.addresses[i].size = static_cast<std::uint32_t>(address->size());
    std::copy(address->begin(), address->end(), info.addresses[i].bytes.begin());
  }
  return info;
}

Status make_membership(Setup& setup, std::vector<PeerInfo> peers, const Identity& identity,
                       int rank) {
  const int nranks = static_cast<int>(peers.size());
  auto members = std::make_unique<Membership>();
  members->name = setup.options.name;
  members->rank = rank;
  members->nranks = nranks;
  members->identity = identity;
  members->slots = 0;
  members->slot_bytes = 0;
  members->channels = setup.options.max_channels + 1;
  members->timeout_ns = setup.options.timeout_ns;
  members->comm_error = setup.comm_error.get();
  members->peers = std::move(peers);
  const PeerInfo& first = members->info(0);
  for (int r = 0; r < nranks; ++r) {
    const PeerInfo& info = members->info(r);
    WHORL_TRY(check_peer_info(info, r, nranks));
    if (info.version != kWireVersion) {
      return Status::error(Code::kInvalidUsage,
                           fmt::format("rank {} speaks wire version {}, rank {} speaks {}; use the "
                                       "same whorl everywhere",
                                       r, info.version, rank, kWireVersion));
    }
    if (info.encrypts != first.encrypts) {
      return Status::error(
          Code::kInvalidUsage,
          fmt::format("WHORL_ENCRYPT is {} on {} and {} on {}; set it alike everywhere",
                      info.encrypts, members->describe(r), first.encrypts, members->describe(0)));
    }
    if (info.transports != first.transports) {
      return Status::error(Code::kInvalidUsage,
                           fmt::format("{} and {} have different lists of transports, that of rank "
                                       "{} is \"{}\"; set WHORL_TRANSPORTS alike everywhere",
                                       members->describe(r), members->describe(0), rank,
                                       fmt::join(setup.options.transports, ",")));
    }
    // What a pair shares must suit both: the smallest that anybody asks for.
    const auto limit = [](auto& all, auto one) {
      if (one != 0 && (all == 0 || one < all)) all = one;
    };
    limit(members->slots, static_cast<int>(info.slots));
    limit(members->slot_bytes, std::size_t{info.slot_bytes});
    members->channels = std::min(members->channels, static_cast<int>(info.channels));
  }
  if (members->slots == 0) members->slots = kDefaultSlots;
  if (members->slot_bytes != 0) {
    members->slot_bytes = std::max(members->slot_bytes, least_slot_bytes(nranks));
  }
  setup.membership = std::move(members);
  return {};
}

} // namespace whorl
