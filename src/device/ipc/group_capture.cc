// Operations of several processes whose streams are captured into graphs.
#include <fmt/core.h>

#include "device/ipc/group.h"

namespace whorl {

/// Describes the capture of an operation in its post: whether this rank's driver can capture it.
/// Kernels that exchange messages can be captured by any driver.
void DevicePeers::describe_capture(Operation& operation) {
  operation.post.capture = operation.capture.id;
  const bool kernels = schedules_open_ && facts_.layout == DeviceLayout::kOwnDevices &&
                       operation.request.collective != Collective::kBarrier;
  if (!kernels && !replays_.prepare().ok()) operation.post.captured = 2;
}

/// Returns why a captured operation cannot be captured, from the posts of all ranks and alike on
/// all; empty if it can, or is not captured.
std::string DevicePeers::why_not_captured(const Operation& operation) const {
  if (operation.post.captured == 0) return {};
  std::vector<DeviceCapture> captures;
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const DevicePost& post = posts_[static_cast<std::size_t>(rank)];
    captures.push_back({.possible = post.captured != 2,
                        .process = members_.info(rank).process_key,
                        .graph = post.capture});
  }
  return whorl::why_not_captured(operation.path, schedules_open_, captures, names_);
}

/// Returns the error of an operation that is captured, but cannot be because of `why`; kOk if the
/// operation is not captured.
Status DevicePeers::refuse_captured(const Operation& operation, const std::string& why) const {
  if (operation.post.captured == 0) return {};
  return Status::error(Code::kInvalidUsage,
                       fmt::format("{} captures {} into a graph, but {}",
                                   names_[static_cast<std::size_t>(members_.rank)],
                                   describe(operation.request), why));
}

/// Ends an operation that all ranks know to be for the host, by an error if all ranks have it
/// captured.
Progress DevicePeers::leave_to_host(const Operation& operation, const std::string& why) {
  Status refused = refuse_captured(operation, why);
  if (refused.ok()) return end(operation, false);
  outcomes_.push_back({operation.number, Met::kRefused, std::move(refused)});
  return Progress::kDone;
}

} // namespace whorl
