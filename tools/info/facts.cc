#include "tools/info/facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "base/unknown_params.h"
#include "comm/arrangement.h"
#include "comm/setup.h"
#include "comm/setup_report.h"
#include "launchers/launcher.h"
#include "net/address.h"
#include "tools/cli/app.h"
#include "whorl/types.h"

namespace whorl::info {
namespace {

using nlohmann::json;

json error(const Status& status) { return {{"error", status.message()}}; }

/// Returns the features that can be left out of a build, each with whether it is there.
json features() {
  json all = json::object();
  std::string_view list = WHORL_FEATURES; // "hwloc=1 yaml=0 …"
  while (!list.empty()) {
    const auto end = std::min(list.find(' '), list.size());
    const std::string_view one = list.substr(0, end);
    all[std::string(one.substr(0, one.find('=')))] = one.ends_with("=1");
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return all;
}

json launcher() {
  const auto launch = detect_launch();
  if (!launch.ok()) return error(launch.status());
  return {{"name", launch->source}, {"rank", launch->rank}, {"nranks", launch->nranks}};
}

/// Returns each variable of launch_variables(), with null where it is not set.
json variables_of_launchers() {
  json found = json::array();
  for (const LaunchVariable& one : launch_variables(process_world().environment)) {
    found.push_back({{"name", one.name}, {"value", one.value ? json(*one.value) : json()}});
  }
  return found;
}

json addresses() {
  const auto local = local_addresses();
  if (!local.ok()) return error(local.status());
  json found{{"interface", interface_for_other_hosts()}, {"addresses", json::array()}};
  for (const SocketAddress& address : *local) {
    std::string text = address.text();
    found["addresses"].push_back(text.substr(0, text.rfind(':'))); // without the port
  }
  return found;
}

/// Pair of ranks like this process, for which transports are judged.
struct Pair {
  const char* name;
  bool one_machine, one_process;
};
constexpr std::array<Pair, 3> kPairs{
    {{"one_process", true, true}, {"one_host", true, false}, {"two_hosts", false, false}}};

/// Returns the other rank of a pair.
PeerInfo peer_of(const PeerInfo& self, const Pair& pair) {
  PeerInfo peer = self;
  if (!pair.one_machine) {
    ++peer.host_key;
    ++peer.machine_key;
  }
  if (!pair.one_process) ++peer.process_key;
  return peer;
}

/// Returns why a transport would not connect a pair; empty if it would.
std::string judge(const Setup& setup, std::size_t index, const PeerInfo& self,
                  const PeerInfo& peer) {
  std::string why = why_not(setup, index, self, peer);
  const int first = setup.first_reaching(self, peer);
  if (!why.empty() || first == static_cast<int>(index)) return why;
  return fmt::format("{} comes first",
                     setup.transports[static_cast<std::size_t>(first)]->traits().name);
}

void add_transports(json& facts) {
  json& all = facts["transports"] = json::array();
  const auto options = Options::from_environment();
  if (!options.ok()) {
    facts["settings"] = error(options.status());
    return;
  }
  const auto setup = rehearse(*options, {.ranks = {2}});
  if (!setup.ok()) {
    facts["settings"] = error(setup.status());
    return;
  }
  const PeerInfo& self = setup->membership->info(0);
  facts["topology"] = fmt::format("{:016x}", topology_digest({self}));
  for (std::size_t i = 0; i < setup->transports.size(); ++i) {
    json& one = all.emplace_back();
    one["name"] = std::string(setup->transports[i]->traits().name);
    for (const Pair& pair : kPairs) {
      const std::string why = judge(*setup, i, self, peer_of(self, pair));
      one[pair.name] = {{"taken", why.empty()}, {"why_not", why}};
    }
  }
  for (const std::string_view name : kTransportNames) {
    const auto& named = options->transports;
    if (std::find(named.begin(), named.end(), name) != named.end()) continue;
    json& one = all.emplace_back();
    one["name"] = std::string(name);
    for (const Pair& pair : kPairs) {
      one[pair.name] = {
          {"taken", false},
          {"why_not", facts["features"].value(name, true) ? "WHORL_TRANSPORTS does not name it"
                                                          : "it was left out of this build"}};
    }
  }
}

std::string text_of_pair(const json& transports, const char* pair, const char* title) {
  std::string taken, rest;
  for (const json& one : transports) {
    const std::string name = one["name"];
    if (one[pair]["taken"].get<bool>()) {
      taken = name;
    } else {
      rest += fmt::format("    not {}: {}\n", name, one[pair]["why_not"].get<std::string>());
    }
  }
  return fmt::format("  {}: {}\n{}", title, taken.empty() ? "none" : taken, rest);
}

/// Returns the addresses that are not loopback; all if there are no others.
std::string outer_addresses(const json& network) {
  const auto all = network["addresses"].get<std::vector<std::string>>();
  std::vector<std::string> outer;
  std::copy_if(all.begin(), all.end(), std::back_inserter(outer),
               [](std::string_view one) { return !one.starts_with("127.") && one != "[::1]"; });
  return fmt::format("{}", fmt::join(outer.empty() ? all : outer, ", "));
}

std::string lines(const json& list, const char* none) {
  std::string text;
  for (const json& one : list) text += fmt::format("  {}\n", one.get<std::string>());
  return text.empty() ? fmt::format("  {}\n", none) : text;
}

} // namespace

json collect() {
  json facts{{"release", cli::release()},
             {"nccl_api", fmt::format("{}.{}.{}", WHORL_MAJOR, WHORL_MINOR, WHORL_PATCH)},
             {"features", features()},
             {"launcher", launcher()},
             {"launch_variables", variables_of_launchers()},
             {"network", addresses()},
             {"variables", variables_in_force()},
             {"unknown_variables", describe_unknown_params(environ)}};
  add_transports(facts);
  return facts;
}

std::string to_json(const json& facts) {
  // Values of variables need not be UTF-8.
  return facts.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string to_text(const json& facts) {
  std::string with, without;
  for (const auto& [name, there] : facts["features"].items()) {
    (there.get<bool>() ? with : without) += " " + name;
  }
  std::string text = fmt::format(
      "whorl {}, API of NCCL {}\nbuilt with:{}; without:{}\n", facts["release"].get<std::string>(),
      facts["nccl_api"].get<std::string>(), with, without.empty() ? " nothing" : without);
  const json& launcher = facts["launcher"];
  text += launcher.contains("error")
              ? fmt::format("launcher: {}\n", launcher["error"].get<std::string>())
              : fmt::format("launcher: {}, rank {} of {}\n", launcher["name"].get<std::string>(),
                            launcher["rank"].get<int>(), launcher["nranks"].get<int>());
  if (facts.contains("topology")) {
    text += fmt::format("topology: {}\n", facts["topology"].get<std::string>());
  }
  const json& network = facts["network"];
  text += network.contains("error")
              ? fmt::format("network: {}\n", network["error"].get<std::string>())
              : fmt::format("network: other hosts reach this one over {} at {}\n",
                            network["interface"].get<std::string>().empty()
                                ? "no interface"
                                : network["interface"].get<std::string>(),
                            outer_addresses(network));
  if (facts.contains("settings")) {
    text += fmt::format("no communicator can be made: {}\n",
                        facts["settings"]["error"].get<std::string>());
  } else {
    text += "transport between two ranks\n";
    text += text_of_pair(facts["transports"], "one_process", "of one process");
    text += text_of_pair(facts["transports"], "one_host", "of one host");
    text += text_of_pair(facts["transports"], "two_hosts", "on two hosts");
  }
  text += "variables that start ranks, by hand or by a launcher\n";
  for (const json& one : facts["launch_variables"]) {
    const std::string name = one["name"];
    text += one["value"].is_null()
                ? fmt::format("  {} is not set\n", name)
                : fmt::format("  {}={}\n", name, printable(one["value"].get<std::string>()));
  }
  text += "variables in force\n" + lines(facts["variables"], "none");
  if (!facts["unknown_variables"].empty()) {
    text += "variables that whorl does not know\n" + lines(facts["unknown_variables"], "");
  }
  return text;
}

} // namespace whorl::info
