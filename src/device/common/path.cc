#include "device/common/path.h"

#include <fmt/core.h>

#include "base/params.h"

namespace whorl {
namespace {

/// Whether `holds` for every two ranks.
template <class Rank, class Holds>
bool all_pairs(std::span<const Rank> ranks, Holds&& holds) {
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (!holds(ranks[b], ranks[a])) return false;
    }
  }
  return true;
}

} // namespace

Result<DeviceAlgo> device_algo() {
  const std::string name = param_text(Param::kDeviceAlgo);
  if (name.empty()) return DeviceAlgo::kAny;
  if (name == "fused") return DeviceAlgo::kFused;
  if (name == "schedule") return DeviceAlgo::kSchedule;
  if (name == "host") return DeviceAlgo::kHost;
  return Status::error(
      Code::kInvalidUsage,
      fmt::format("WHORL_DEVICE_ALGO=\"{}\" is none of fused, schedule, host", name));
}

bool suits_devices(const Request& request) noexcept {
  return !request.point_to_point() && !request.scaled;
}

DeviceLayout layout_of(std::span<const DevicePlace> ranks) {
  // Within a process memory is not mapped once more, so another context does not reach it.
  const bool one = all_pairs(ranks, [](const DevicePlace& a, const DevicePlace& b) {
    return a.device == b.device && (a.process != b.process || a.context == b.context);
  });
  if (one) return DeviceLayout::kOneDevice;
  const bool own = all_pairs(
      ranks, [](const DevicePlace& a, const DevicePlace& b) { return a.device != b.device; });
  return own ? DeviceLayout::kOwnDevices : DeviceLayout::kOtherwise;
}

DevicePath choose_device_path(const DeviceFacts& facts) noexcept {
  if (!facts.on_device || facts.algo == DeviceAlgo::kHost) return DevicePath::kHost;
  if (facts.barrier) return DevicePath::kBarrier;
  // Without MPS kernels of two processes on one device take turns, and would wait for each other.
  const bool run_together = facts.one_process || facts.layout == DeviceLayout::kOwnDevices ||
                            (facts.together && facts.layout == DeviceLayout::kOneDevice);
  const bool schedule =
      facts.schedules && run_together && !facts.uneven_sums && facts.algo != DeviceAlgo::kFused;
  const bool fused = facts.layout == DeviceLayout::kOneDevice && facts.shared;
  if (fused && !(schedule && facts.algo == DeviceAlgo::kSchedule)) return DevicePath::kFused;
  return schedule ? DevicePath::kSchedule : DevicePath::kHost;
}

std::string why_not_captured(DevicePath path, bool schedules_ready,
                             std::span<const DeviceCapture> ranks,
                             std::span<const std::string> names) {
  if (path == DevicePath::kHost) return "the host has to do it";
  if (path == DevicePath::kSchedule) {
    return schedules_ready ? ""
                           : "it is the first that exchanges messages between devices; issue one "
                             "outside the capture before";
  }
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    if (!ranks[a].possible) {
      return "the driver of " + names[a] + " cannot capture that streams wait for each other";
    }
    for (std::size_t b = 0; b < a; ++b) { // its branches may be put one behind the other
      if (ranks[a].process == ranks[b].process && ranks[a].graph != 0 &&
          ranks[a].graph == ranks[b].graph) {
        return fmt::format(
            "{} and {} do so into the same graph; ranks that wait for each other "
            "need graphs of their own",
            names[b], names[a]);
      }
    }
  }
  return {};
}

} // namespace whorl
