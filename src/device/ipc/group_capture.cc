// Operations of several processes whose streams are captured into graphs.
#include <fmt/core.h>

#include "device/ipc/group.h"

namespace whorl {

/// A kernel that interprets schedules can be captured by any driver.
void DevicePeers::describe_capture(Operation& operation) {
  operation.post.capture = operation.capture.id;
  const bool kernels =
      devices_ == Devices::kOpen && operation.request.collective != Collective::kBarrier;
  if (!kernels && !replays_.prepare().ok()) operation.post.captured = 2;
}

/// From the posts of all ranks, and alike on all; empty if it can be captured, or is not.
std::string DevicePeers::why_not_captured(const Operation& operation) const {
  if (operation.post.captured == 0) return {};
  if (operation.by == By::kHost) return "the host has to do it";
  if (operation.by == By::kSchedules) {
    return devices_ == Devices::kOpen ? ""
                                      : "it is the first that exchanges messages between devices; "
                                        "issue one outside the capture before";
  }
  for (std::size_t a = 0; a < posts_.size(); ++a) {
    if (posts_[a].captured == 2) {
      return "the driver of " + names_[a] + " cannot capture that streams wait for each other";
    }
    for (std::size_t b = 0; b < a; ++b) { // its branches may be put one behind the other
      if (members_.same_process(static_cast<int>(a), static_cast<int>(b)) &&
          posts_[a].capture != 0 && posts_[a].capture == posts_[b].capture) {
        return fmt::format(
            "{} and {} do so into the same graph; ranks that wait for each other "
            "need graphs of their own",
            names_[b], names_[a]);
      }
    }
  }
  return {};
}

/// An error if the operation is captured, but cannot be.
Status DevicePeers::refuse_captured(const Operation& operation, const std::string& why) const {
  if (operation.post.captured == 0) return {};
  return Status::error(Code::kInvalidUsage,
                       fmt::format("{} captures {} into a graph, but {}",
                                   names_[static_cast<std::size_t>(members_.rank)],
                                   describe(operation.request), why));
}

/// All ranks know it, and all have it captured or none.
Progress DevicePeers::leave_to_host(const Operation& operation, const std::string& why) {
  Status refused = refuse_captured(operation, why);
  if (refused.ok()) return end(operation, false);
  outcomes_.push_back({operation.number, Met::kRefused, std::move(refused)});
  return Progress::kDone;
}

} // namespace whorl
