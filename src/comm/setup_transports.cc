#include "comm/setup_transports.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string_view>

#include "base/log.h"
#include "base/params.h"
#include "comm/place.h"
#include "transports/faulty/transport.h"
#include "transports/inproc/transport.h"
#include "transports/shm/transport.h"
#include "transports/tcp/transport.h"
#include "transports/ucx/make.h"
#include "transports/verbs/verbs.h"

namespace whorl {
namespace {

/// Makes a transport; null if there is none of that name.
Result<std::unique_ptr<Transport>> make_transport(std::string_view name, const Setup& setup,
                                                  int rank) {
  std::unique_ptr<Transport> made;
  if (name == "inproc") made = std::make_unique<InprocTransport>();
  if (name == "shm") made = std::make_unique<ShmTransport>(setup.node);
  if (name == "verbs") {
    made = make_verbs_transport(
        {.number = static_cast<std::uint32_t>(rank),
         .nearest = nearest_rdma_devices,
         .unwanted = setup.options.encrypts ? "WHORL_ENCRYPT=1, and what RDMA devices send is not "
                                              "encrypted"
                                            : ""});
  }
  if (name == "tcp") made = std::make_unique<TcpTransport>(setup.options.encrypts);
  if (name == "ucx") return make_ucx_transport();
  return made;
}

/// Puts each transport into one with faults, if there is to be any.
Status add_faults(std::vector<std::unique_ptr<Transport>>& transports) {
  const std::string faults = param_text(Param::kFaulty);
  if (faults.empty()) return {};
  const auto settings = FaultySettings::parse(faults);
  if (!settings.ok()) return settings.status();
  for (auto& transport : transports) {
    transport = std::make_unique<FaultyTransport>(std::move(transport), *settings);
  }
  return {};
}

/// Describes why transports are of no use here, as the end of a sentence.
std::string absences(const Setup& setup) {
  std::string text;
  for (const auto& transport : setup.transports) {
    if (transport->absence().empty()) continue;
    text += fmt::format("; rank {} has no {}: {}", setup.membership->rank, transport->traits().name,
                        transport->absence());
  }
  return text;
}

/// Warns, once in a process, where a peer is reached by a slower transport because a better one has
/// a fault.
void warn_of_faults(const Setup& setup) {
  for (std::size_t i = 0; i < setup.transports.size(); ++i) {
    const Transport& absent = *setup.transports[i];
    const auto slower = std::find_if(setup.transport_of.begin(), setup.transport_of.end(),
                                     [i](int index) { return index > static_cast<int>(i); });
    if (!absent.absence_is_a_fault() || slower == setup.transport_of.end()) continue;
    static std::once_flag once;
    std::call_once(once, [&] {
      log(LogLevel::kWarn,
          fmt::format("{} is used instead of {}, which may be slower: {}",
                      setup.transports[static_cast<std::size_t>(*slower)]->traits().name,
                      absent.traits().name, absent.absence()));
    });
  }
}

} // namespace

Status make_transports(Setup& setup, int rank) {
  for (const std::string& name : setup.options.transports) {
    auto transport = make_transport(name, setup, rank);
    if (!transport.ok()) return transport.status();
    if (*transport == nullptr || setup.transports.size() == PeerInfo{}.addresses.size()) {
      return Status::error(Code::kInvalidUsage,
                           fmt::format("WHORL_TRANSPORTS: \"{}\" is not a transport, or there are "
                                       "more than {}; there are inproc, shm, verbs, ucx and tcp",
                                       name, PeerInfo{}.addresses.size()));
    }
    setup.transports.push_back(*std::move(transport));
  }
  return add_faults(setup.transports);
}

Status choose_transports(Setup& setup) {
  const Membership& members = *setup.membership;
  const PeerInfo& self = members.peers[static_cast<std::size_t>(members.rank)];
  setup.transport_of.assign(static_cast<std::size_t>(members.nranks), -1);
  for (int peer = 0; peer < members.nranks; ++peer) {
    if (peer == members.rank) continue;
    int& chosen = setup.transport_of[static_cast<std::size_t>(peer)];
    chosen = setup.first_reaching(self, members.info(peer));
    if (chosen < 0) {
      return Status::error(
          Code::kInvalidUsage,
          fmt::format("{} cannot reach {} by any of the transports {}; allow another one in "
                      "WHORL_TRANSPORTS{}",
                      members.describe(members.rank), members.describe(peer),
                      fmt::join(setup.options.transports, ","), absences(setup)));
    }
  }
  warn_of_faults(setup);
  return {};
}

std::size_t suitable_slot_bytes(const Setup& setup) {
  // Also for a single rank, which copies in pieces of this size.
  constexpr std::size_t kMin = 65536;
  std::size_t bytes = kMin;
  for (const int index : setup.transport_of) {
    if (index < 0) continue;
    bytes = std::max(bytes, setup.transports[static_cast<std::size_t>(index)]->traits().slot_bytes);
  }
  return bytes;
}

std::function<std::size_t(int, std::size_t)> endpoint_bytes(const Setup& setup) {
  const Membership& members = *setup.membership;
  std::vector<std::array<std::size_t, 4>> counts; // [rank][transport] peers
  for (const PeerInfo& self : members.peers) {
    auto& count = counts.emplace_back();
    for (const PeerInfo& peer : members.peers) {
      if (peer.rank == self.rank) continue;
      const int transport = setup.first_reaching(self, peer);
      if (transport >= 0) ++count[static_cast<std::size_t>(transport)];
    }
  }
  return [&setup, counts = std::move(counts)](int slots, std::size_t slot_bytes) {
    std::size_t most = 0;
    for (const auto& count : counts) {
      std::size_t bytes = 0;
      for (std::size_t i = 0; i < setup.transports.size(); ++i) {
        bytes += count[i] * setup.transports[i]->endpoint_bytes(slots, slot_bytes);
      }
      most = std::max(most, bytes);
    }
    return most;
  };
}

Status connect_all(Setup& setup) {
  for (std::size_t i = 0; i < setup.transports.size(); ++i) {
    std::vector<int> peers;
    for (int peer = 0; peer < setup.membership->nranks; ++peer) {
      if (setup.transport_of[static_cast<std::size_t>(peer)] == static_cast<int>(i)) {
        peers.push_back(peer);
      }
    }
    if (peers.empty()) {
      setup.transports[i].reset();
      continue;
    }
    WHORL_TRY(setup.transports[i]->connect(*setup.membership, peers, i));
  }
  return {};
}

void drop_closed_transports(Setup& setup) {
  std::vector<int> new_index(setup.transports.size(), -1);
  int kept = 0;
  for (std::size_t i = 0; i < setup.transports.size(); ++i) {
    if (setup.transports[i] != nullptr) new_index[i] = kept++;
  }
  for (int& index : setup.transport_of) {
    if (index >= 0) index = new_index[static_cast<std::size_t>(index)];
  }
  std::erase(setup.transports, nullptr);
}

int Setup::first_reaching(const PeerInfo& one, const PeerInfo& other) const {
  for (std::size_t i = 0; i < transports.size(); ++i) {
    if (transports[i] != nullptr && transports[i]->reach(one, other, i).reachable) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

std::vector<std::vector<Endpoint*>> Setup::endpoints() const {
  std::vector<std::vector<Endpoint*>> table(static_cast<std::size_t>(membership->channels));
  for (int channel = 0; channel < membership->channels; ++channel) {
    for (int peer = 0; peer < membership->nranks; ++peer) {
      const int index = transport_of[static_cast<std::size_t>(peer)];
      table[static_cast<std::size_t>(channel)].push_back(
          index < 0 ? nullptr
                    : transports[static_cast<std::size_t>(index)]->endpoint(peer, channel));
    }
  }
  return table;
}

} // namespace whorl
