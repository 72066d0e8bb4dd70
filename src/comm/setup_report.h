#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "comm/setup.h"

namespace whorl {

/// Names of all transports, best first.
inline constexpr std::array<std::string_view, 5> kTransportNames{"inproc", "shm", "verbs", "ucx",
                                                                 "tcp"};

/// Returns why two ranks are not connected by the transport `index` of a set-up; empty if they can
/// be.
std::string why_not(const Setup& setup, std::size_t index, const PeerInfo& self,
                    const PeerInfo& peer);

/// Returns the environment variables of whorl that are set, as "NAME=value", in the order of the
/// table of parameters.
std::vector<std::string> variables_in_force();

/// Returns lines about a set-up whose transports have been chosen: the release and the variables in
/// force, and how this rank reaches the others; where over a network, why not otherwise.
std::vector<std::string> describe_choices(const Setup& setup);

} // namespace whorl
