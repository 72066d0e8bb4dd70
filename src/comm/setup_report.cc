#include "comm/setup_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/params.h"
#include "base/printable.h"
#include "net/address.h"
#include "whorl/types.h"

namespace whorl {
namespace {

std::string_view name_of(const Setup& setup, std::size_t index) {
  return setup.transports[index]->traits().name;
}

/// Returns whether WHORL_TRANSPORTS names a transport.
bool is_allowed(const Setup& setup, std::string_view name) {
  const auto& all = setup.options.transports;
  return std::find(all.begin(), all.end(), name) != all.end();
}

/// Returns ranks as "1-3, 5", ascending; after some of them as "…".
std::string ranges(const std::vector<int>& ranks) {
  constexpr std::size_t kMaxLength = 60;
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (text.size() > kMaxLength) return text + ", …";
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (end - i > 1) text += fmt::format("-{}", ranks[end - 1]);
    i = end;
  }
  return text;
}

/// Describes how this rank reaches the peers for which transport `index` has been chosen.
std::string describe_peers(const Setup& setup, std::size_t index, const std::vector<int>& peers) {
  const Membership& members = *setup.membership;
  const PeerInfo& self = members.peers[static_cast<std::size_t>(members.rank)];
  const PeerInfo& first = members.info(peers.front());
  std::string text = fmt::format("rank {} reaches rank{} {} by {}", members.rank,
                                 peers.size() > 1 ? "s" : "", ranges(peers), name_of(setup, index));
  if (!setup.transports[index]->reach(self, first, index).networked) return text;
  if (const std::string interface = interface_for_other_hosts();
      !interface.empty() && self.machine_key != first.machine_key) {
    text += " over " + interface;
  }
  for (std::size_t better = 0; better < index; ++better) {
    const std::string why = why_not(setup, better, self, first);
    if (!why.empty()) text += fmt::format("; not by {}: {}", name_of(setup, better), why);
  }
  if (self.machine_key == first.machine_key && !is_allowed(setup, "shm")) {
    text += "; not by shm, though on one machine: WHORL_TRANSPORTS does not name it";
  }
  return text;
}

} // namespace

std::string why_not(const Setup& setup, std::size_t index, const PeerInfo& self,
                    const PeerInfo& peer) {
  const Transport& transport = *setup.transports[index];
  if (transport.reach(self, peer, index).reachable) return {};
  const bool same_host = self.host_key == peer.host_key;
  const bool same_process = same_host && self.process_key == peer.process_key;
  if (const std::string_view name = name_of(setup, index); name == "inproc") {
    return "the ranks are in different processes";
  } else if (name == "shm") {
    if (self.machine_key != peer.machine_key) return "the ranks are on different machines";
    if (!same_host) {
      return "the ranks are on one machine, but in different network namespaces (containers), or "
             "their WHORL_HOST_ID differs";
    }
    if (same_process) return "the ranks are in one process";
  }
  return transport.absence().empty() ? "one of the ranks has no address for it"
                                     : transport.absence();
}

std::vector<std::string> variables_in_force() {
  std::vector<std::string> set;
  for (const ParamInfo& param : all_params()) {
    for (const char* const name : {param.name, param.old_name}) {
      const char* const value = name != nullptr ? std::getenv(name) : nullptr;
      if (value == nullptr) continue;
      set.push_back(fmt::format("{}={}", name, printable(value)));
      break; // an old name counts where the new one is not set
    }
  }
  return set;
}

std::vector<std::string> describe_choices(const Setup& setup) {
  const auto variables = variables_in_force();
  std::vector<std::string> lines{fmt::format(
      "whorl {}.{}.{}, {}", WHORL_RELEASE_MAJOR, WHORL_RELEASE_MINOR, WHORL_RELEASE_PATCH,
      variables.empty() ? "no variable of whorl is set"
                        : fmt::format("with {}", fmt::join(variables, " ")))};
  for (std::size_t i = 0; i < setup.transports.size(); ++i) {
    std::vector<int> peers;
    for (int peer = 0; peer < setup.membership->nranks; ++peer) {
      if (setup.transport_of[static_cast<std::size_t>(peer)] == static_cast<int>(i)) {
        peers.push_back(peer);
      }
    }
    if (!peers.empty()) lines.push_back(describe_peers(setup, i, peers));
  }
  return lines;
}

} // namespace whorl
