#pragma once

#include <cstdint>
#include <string>

namespace whorl {

/// How much more memory this process may use before the kernel starts killing.
struct MemoryBudget {
  std::uint64_t bytes = UINT64_MAX;
  std::string limit; ///< what sets it, for messages: "MemAvailable" or the path of a cgroup's file
};

/// The least of /proc/meminfo's MemAvailable and what is left under the memory limits of this
/// process's cgroups (version 1 or 2) and all above them; page cache that the kernel can drop
/// counts as left. What cannot be read does not limit. `root` stands for "/"; tests point it
/// elsewhere.
MemoryBudget memory_budget(const std::string& root = "");

/// The memory of the machine, or 0 if unknown.
std::uint64_t physical_memory(const std::string& root = "");

} // namespace whorl
