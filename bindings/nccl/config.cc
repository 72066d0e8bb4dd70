#include "bindings/nccl/config.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace whorl_nccl {

whorlConfig_t default_config() noexcept {
  whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
  if (std::getenv("WHORL_TIMEOUT_MS") == nullptr) config.timeoutMs = kTimeoutMs;
  return config;
}

whorlConfig_t translate(const ncclConfig_t& config) noexcept {
  whorlConfig_t out = default_config();
  if (config.magic != NCCL_CONFIG_MAGIC || config.size < offsetof(ncclConfig_t, cgaClusterSize)) {
    out.magic = 0; // whorl refuses it in its turn, and tells the other ranks
    return out;
  }
  ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
  std::memcpy(&given, &config, std::min(config.size, sizeof given));
  out.blocking = given.blocking;
  out.cgaClusterSize = given.cgaClusterSize;
  out.minCTAs = given.minCTAs;
  out.maxCTAs = given.maxCTAs;
  out.netName = given.netName;
  out.splitShare = given.splitShare;
  out.trafficClass = given.trafficClass;
  out.commName = given.commName;
  out.collnetEnable = given.collnetEnable;
  out.CTAPolicy = given.CTAPolicy;
  out.shrinkShare = given.shrinkShare;
  out.nvlsCTAs = given.nvlsCTAs;
  out.nChannelsPerNetPeer = given.nChannelsPerNetPeer;
  out.nvlinkCentricSched = given.nvlinkCentricSched;
  return out;
}

} // namespace whorl_nccl
