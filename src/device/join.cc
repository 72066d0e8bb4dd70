#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "device/common/group.h"
#include "device/ipc/group.h"
#include "device/local_group.h"
#include "device/staged/stream.h"
#include "gpu/work.h"

namespace whorl {
namespace {

/// The groups that ranks of this process have joined and not left.
struct Registry {
  std::mutex mutex;
  std::map<std::array<std::byte, 16>, std::weak_ptr<LocalDeviceGroup>> groups; ///< by job
};
Registry& registry() {
  static Registry* const instance = new Registry; // never destroyed: ranks may outlive main()
  return *instance;
}

} // namespace

std::shared_ptr<DeviceGroup> join_device_group(const Membership& members,
                                               std::span<std::byte> board, FdMailbox* mailbox,
                                               const DeviceWatch& watch, const DeviceRules& rules) {
  if (!devices_possible()) return nullptr;
  if (members.ranks_in_process_of(members.rank) != members.nranks) {
    static_assert(kMostDeviceRanks <= gpu::kMaxBuffers);
    if (!members.shares_devices() || board.empty()) return nullptr;
    return std::make_shared<DevicePeers>(members, board, mailbox, watch, rules);
  }
  auto& [mutex, groups] = registry();
  const std::lock_guard lock(mutex);
  std::erase_if(groups, [](const auto& entry) { return entry.second.expired(); });
  auto& known = groups[members.identity.job];
  std::shared_ptr<LocalDeviceGroup> group = known.lock();
  if (group == nullptr) {
    group = std::make_shared<LocalDeviceGroup>(members, rules);
    known = group;
  }
  return group;
}

} // namespace whorl
