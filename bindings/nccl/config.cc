#include "bindings/nccl/config.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "bindings/nccl/support.h"

namespace whorl_nccl {
namespace {

struct Bounds {
  const char* field;
  int value;
  int low;
  int high;
};

ncclResult_t out_of_bounds(const char* function, const Bounds& bad) noexcept {
  if (bad.high == INT_MAX) {
    return fail_in_group(ncclInvalidArgument, function, ": config.", bad.field, " is ", bad.value,
                         "; it must be at least ", bad.low);
  }
  return fail_in_group(ncclInvalidArgument, function, ": config.", bad.field, " is ", bad.value,
                       "; it must be from ", bad.low, " to ", bad.high);
}

} // namespace

whorlConfig_t default_config() noexcept {
  whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
  if (std::getenv("WHORL_TIMEOUT_MS") == nullptr) config.timeoutMs = kTimeoutMs;
  return config;
}

ncclResult_t translate(const char* function, const ncclConfig_t& config,
                       whorlConfig_t& out) noexcept {
  out = default_config();
  if (config.magic != NCCL_CONFIG_MAGIC || config.size < offsetof(ncclConfig_t, cgaClusterSize)) {
    return fail_in_group(ncclInvalidArgument, function,
                         ": config was not initialised; start from NCCL_CONFIG_INITIALIZER");
  }
  ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
  std::memcpy(&given, &config, std::min(config.size, sizeof given));

  const Bounds all[] = {{"blocking", given.blocking, 0, 1},
                        {"cgaClusterSize", given.cgaClusterSize, 0, 8},
                        {"minCTAs", given.minCTAs, 1, INT_MAX},
                        {"maxCTAs", given.maxCTAs, 1, INT_MAX},
                        {"splitShare", given.splitShare, 0, 1},
                        {"collnetEnable", given.collnetEnable, 0, 1},
                        {"CTAPolicy", given.CTAPolicy, 0, 3},
                        {"shrinkShare", given.shrinkShare, 0, 1},
                        {"nvlsCTAs", given.nvlsCTAs, 1, INT_MAX},
                        {"nChannelsPerNetPeer", given.nChannelsPerNetPeer, 1, INT_MAX},
                        {"nvlinkCentricSched", given.nvlinkCentricSched, 0, 1}};
  for (const Bounds& each : all) {
    if (each.value == NCCL_CONFIG_UNDEF_INT) continue;
    if (each.value < each.low || each.value > each.high) {
      return out_of_bounds(function, each);
    }
  }
  if (given.minCTAs != NCCL_CONFIG_UNDEF_INT && given.maxCTAs != NCCL_CONFIG_UNDEF_INT &&
      given.minCTAs > given.maxCTAs) {
    return fail_in_group(ncclInvalidArgument, function, ": config.minCTAs is ", given.minCTAs,
                         ", more than config.maxCTAs, ", given.maxCTAs);
  }

  // CTAs are channels. whorl's bounds are narrower, so values are clamped to them.
  const auto at_most = [](int value, int limit) {
    return value == NCCL_CONFIG_UNDEF_INT ? WHORL_CONFIG_UNDEF_INT : std::min(value, limit);
  };
  out.blocking = given.blocking;
  out.minCTAs = at_most(given.minCTAs, 1024);
  out.maxCTAs = at_most(given.maxCTAs, 1024);
  out.nChannelsPerNetPeer = at_most(given.nChannelsPerNetPeer, 16);
  out.netName = given.netName;
  if (given.netName != nullptr) {
    const std::string_view name = given.netName;
    if (name == "Socket" || name == "IB") out.netName = "tcp";
  }
  out.commName = given.commName;
  return ncclSuccess;
}

} // namespace whorl_nccl
