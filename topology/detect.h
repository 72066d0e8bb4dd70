#pragma once

#include <string>

#include "base/status.h"
#include "topology/graph.h"

namespace whorl::topology {

/// Parts of a machine that detect() looks at.
enum class Detail : std::uint8_t {
  kProcessors, ///< packages, memories, caches and cores: milliseconds
  kDevices,    ///< processors, PCI, GPUs, NICs and the links of GPUs
};

/// Returns whether this machine is known to have one memory and one last-level cache for all its
/// processing units, so that ranks cannot be divided by its parts. Takes microseconds. `root` is
/// "/sys", or a recorded copy of its folder devices/system.
bool is_undivided(const std::string& root);

/// Detects the machine that this process runs on, by hwloc. Where whorl was built without hwloc, or
/// hwloc fails, the result is flat, and a note says why.
Graph detect(Detail detail);

} // namespace whorl::topology
