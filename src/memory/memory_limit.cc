#include "memory/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>

namespace whorl {
namespace {

/// Reads the number after `key` in a file of "key value" words, or the first number if `key` is
/// empty. Returns nothing for "max" and other words that are no number.
std::optional<std::uint64_t> read_number(const std::string& path, std::string_view key = {}) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  std::string word;
  if (!key.empty()) {
    while (file >> word && word != key) {
    }
  }
  return file >> value ? std::optional(value) : std::nullopt;
}

void lower(MemoryBudget& budget, std::uint64_t bytes, const std::string& limit) {
  if (bytes < budget.bytes) budget = {.bytes = bytes, .limit = limit};
}

/// Names of a cgroup's files in the two versions.
struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* droppable; ///< key in memory.stat
};
constexpr CgroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                                "total_inactive_file"};
constexpr CgroupFiles kVersion2{"memory.max", "memory.current", "inactive_file"};

/// Applies the limits of the cgroup `path` under `mount` and of all above it. In a container the
/// path may be the host's and not exist here; then only the mount's root, which is the container's
/// own cgroup, is read.
void look_at_cgroups(MemoryBudget& budget, const std::string& mount, std::string path,
                     const CgroupFiles& files) {
  for (;;) {
    if (!path.empty() && path.back() == '/') path.pop_back();
    const std::string folder = mount + path + "/";
    const auto limit = read_number(folder + files.limit);
    // Version 1 writes a number of this size for "no limit". The usage is expensive to read: the
    // kernel sums it up over all processors.
    constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;
    const auto usage =
        limit && *limit < kNoLimit ? read_number(folder + files.usage) : std::nullopt;
    if (usage) {
      const std::uint64_t droppable =
          read_number(folder + "memory.stat", files.droppable).value_or(0);
      const std::uint64_t used = *usage - std::min(*usage, droppable);
      lower(budget, *limit - std::min(*limit, used), folder + files.limit);
    }
    if (path.empty()) return;
    const std::size_t slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
}

} // namespace

MemoryBudget memory_budget(const std::string& root) {
  MemoryBudget budget;
  if (const auto kib = read_number(root + "/proc/meminfo", "MemAvailable:")) {
    lower(budget, *kib * 1024, "MemAvailable");
  }
  // Lines "hierarchy:controllers:path"; version 2 has no controllers.
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      look_at_cgroups(budget, root + "/sys/fs/cgroup", path, kVersion2);
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      look_at_cgroups(budget, root + "/sys/fs/cgroup/memory", path, kVersion1);
    }
  }
  return budget;
}

std::uint64_t physical_memory(const std::string& root) {
  return read_number(root + "/proc/meminfo", "MemTotal:").value_or(0) * 1024;
}

} // namespace whorl
