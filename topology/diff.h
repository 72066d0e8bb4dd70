#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/graph.h"

namespace whorl::topology {

/// Compares two machines that should be equal. Returns a sentence for each difference: GPUs and
/// NICs that one lacks; links between GPUs, PCI links, rates and states of ports that differ;
/// devices at another PCI switch or NUMA node; processors and cores. `name_a` and `name_b` are the
/// names of the machines in the sentences.
///
/// A device's counterpart is the equal device with the same bus id, then the one with the same
/// name, then the next one at the same NUMA node, so that a part that is missing makes no other
/// differ. What one of the sources does not show is no difference.
std::vector<std::string> diff(const Graph& a, const Graph& b, std::string_view name_a,
                              std::string_view name_b);

} // namespace whorl::topology
