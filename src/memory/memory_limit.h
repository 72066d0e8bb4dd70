#pragma once

#include <cstdint>
#include <string>

namespace whorl {

/// Memory that this process may still use before the kernel kills a process.
struct MemoryBudget {
  std::uint64_t bytes = UINT64_MAX;
  std::string limit; ///< source of the limit, for messages: "MemAvailable" or a cgroup's file
};

/// Returns the least of /proc/meminfo's MemAvailable and what is left under the memory limits of
/// this process's cgroups (version 1 or 2) and all above them; page cache that the kernel can drop
/// counts as left. Files that cannot be read set no limit. `root` stands for "/"; tests pass
/// another folder.
MemoryBudget memory_budget(const std::string& root = "");

/// Returns the bytes of memory of the machine, or 0 if unknown.
std::uint64_t physical_memory(const std::string& root = "");

} // namespace whorl
