#include "device/join.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/log.h"
#include "base/params.h"
#include "device/ipc/group.h"
#include "device/local_group.h"
#include "device/staged/pinned_memory.h"
#include "device/staged/pipeline.h"
#include "device/staged/stream.h"
#include "gpu/driver.h"
#include "gpu/kernels.h"
#include "gpu/work.h"
#include "node/board.h"

namespace whorl {
namespace {

/// The groups that ranks of this process have joined and not left, by job.
struct Registry {
  std::mutex mutex;
  std::map<std::array<std::byte, 16>, std::weak_ptr<LocalDeviceGroup>> groups;
};
Registry& registry() {
  static Registry* const instance = new Registry; // never destroyed: ranks may outlive main()
  return *instance;
}

} // namespace

std::shared_ptr<DeviceGroup> join_device_group(const Membership& members,
                                               std::span<std::byte> board, FdChannel* fd_channel,
                                               const DeviceWatch& watch, const DeviceRules& rules) {
  if (!devices_possible()) return nullptr;
  if (members.ranks_sharing(&PeerInfo::process_key, members.rank) != members.nranks) {
    static_assert(kMaxDeviceRanks <= gpu::kMaxBuffers &&
                  kMaxDeviceRanks <= int{kBoardRanksWithPairs});
    if (!members.shares_devices() || board.empty()) return nullptr;
    return std::make_shared<DevicePeers>(members, board, fd_channel, watch, rules);
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
  return {group.get(), [group, rank = members.rank](DeviceGroup*) { group->leave_for_good(rank); }};
}

void prepare_device(int ranks) {
  CUcontext context = nullptr;
  if (!devices_possible() || gpu::driver()->cuCtxGetCurrent(&context) != CUDA_SUCCESS ||
      context == nullptr) {
    return;
  }
  Status status = gpu::Kernels::of(context).status();
  const auto segment_bytes = param_int(Param::kSegmentBytes, 0, std::int64_t{1} << 40);
  if (status.ok()) status = segment_bytes.status();
  if (status.ok()) {
    status = StagingMemory::reserve(
        context, static_cast<std::size_t>(ranks),
        DeviceStagingPipeline::usual_memory(static_cast<std::size_t>(*segment_bytes)));
  }
  // An operation that needs the kernels or the memory gets the error again.
  if (!status.ok()) log(LogLevel::kInfo, "preparing the device: " + status.message());
}

} // namespace whorl
