#include "topology/nvlink.h"

#include <algorithm>

namespace whorl::gpu {
namespace {

NvLink::End end_of(nvmlIntNvLinkDeviceType_t type) {
  switch (type) {
    case NVML_NVLINK_DEVICE_TYPE_GPU:
      return NvLink::End::kGpu;
    case NVML_NVLINK_DEVICE_TYPE_SWITCH:
      return NvLink::End::kSwitch;
    default:
      return NvLink::End::kOther;
  }
}

std::vector<NvLink> links_of(const Nvml& nvml, nvmlDevice_t device) {
  std::vector<NvLink> links;
  for (unsigned link = 0; link < NVML_NVLINK_MAX_LINKS; ++link) {
    unsigned active = 0;
    // NVML returns an error for a device without NVLink, and for a link that the device does not
    // have.
    if (nvml->nvmlDeviceGetNvLinkState(device, link, &active) != NVML_SUCCESS || active == 0) {
      continue;
    }
    NvLink found{.link = link};
    nvmlPciInfo_t peer{};
    nvmlIntNvLinkDeviceType_t type = -1;
    if (nvml->nvmlDeviceGetNvLinkVersion(device, link, &found.version) != NVML_SUCCESS) {
      found.version = 0;
    }
    if (nvml->nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, &peer) == NVML_SUCCESS) {
      found.peer_bus_id = text_of(peer);
    }
    if (nvml->nvmlDeviceGetNvLinkRemoteDeviceType(device, link, &type) == NVML_SUCCESS) {
      found.end = end_of(type);
    }
    links.push_back(std::move(found));
  }
  return links;
}

Reach reach_of(const Nvml& nvml, nvmlDevice_t from, nvmlDevice_t to,
               nvmlGpuP2PCapsIndex_t capability) {
  nvmlGpuP2PStatus_t status = -1;
  if (nvml->nvmlDeviceGetP2PStatus(from, to, capability, &status) != NVML_SUCCESS) {
    return Reach::kUnknown;
  }
  switch (status) {
    case NVML_P2P_STATUS_OK:
      return Reach::kWorks;
    case NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED:
      return Reach::kChipset;
    case NVML_P2P_STATUS_GPU_NOT_SUPPORTED:
      return Reach::kDevice;
    case NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED:
      return Reach::kTopology;
    case NVML_P2P_STATUS_DISABLED_BY_REGKEY:
      return Reach::kDisabled;
    case NVML_P2P_STATUS_NOT_SUPPORTED:
      return Reach::kNot;
    default:
      return Reach::kUnknown;
  }
}

unsigned count(const std::vector<NvLink>& links, NvLink::End end) {
  return static_cast<unsigned>(std::count_if(
      links.begin(), links.end(), [end](const NvLink& link) { return link.end == end; }));
}

unsigned nvlinks_between(const DeviceLinks& all, std::size_t from, std::size_t to) {
  const auto direct = static_cast<unsigned>(
      std::count_if(all.links[from].begin(), all.links[from].end(), [&](const NvLink& link) {
        return link.end == NvLink::End::kGpu && link.peer_bus_id == all.bus_ids[to];
      }));
  if (direct > 0) return direct;
  return std::min(count(all.links[from], NvLink::End::kSwitch),
                  count(all.links[to], NvLink::End::kSwitch));
}

} // namespace

const char* words_of(Reach reach) {
  switch (reach) {
    case Reach::kWorks:
      return "yes";
    case Reach::kChipset:
      return "no: the chipset cannot";
    case Reach::kDevice:
      return "no: the device cannot";
    case Reach::kTopology:
      return "no: they hang on different I/O hubs";
    case Reach::kDisabled:
      return "no: disabled in the driver's settings";
    case Reach::kNot:
      return "no";
    case Reach::kUnknown:
      break;
  }
  return "unknown";
}

DeviceLinks find_links(const Nvml& nvml) {
  const std::vector<nvmlDevice_t> devices = nvml.devices();
  DeviceLinks all;
  for (const nvmlDevice_t device : devices) {
    all.bus_ids.push_back(nvml.bus_id(device));
    all.links.push_back(links_of(nvml, device));
  }
  for (std::size_t from = 0; from < devices.size(); ++from) {
    for (std::size_t to = 0; to < devices.size(); ++to) {
      if (from == to) continue;
      const auto reach = [&](nvmlGpuP2PCapsIndex_t capability) {
        return reach_of(nvml, devices[from], devices[to], capability);
      };
      all.pairs.push_back({.from = from,
                           .to = to,
                           .read = reach(NVML_P2P_CAPS_INDEX_READ),
                           .write = reach(NVML_P2P_CAPS_INDEX_WRITE),
                           .atomics = reach(NVML_P2P_CAPS_INDEX_ATOMICS),
                           .nvlink = reach(NVML_P2P_CAPS_INDEX_NVLINK),
                           .nvlinks = nvlinks_between(all, from, to)});
    }
  }
  return all;
}

} // namespace whorl::gpu
