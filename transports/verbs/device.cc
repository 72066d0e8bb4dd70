#include "transports/verbs/device.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/system.h"
#include "net/address.h"
#include "transports/verbs/errors.h"

namespace whorl {
namespace {

using verbs::Fabric;

// Amount of memory that a process must be able to register. With less, only the smallest
// communicators could be made.
constexpr std::size_t kLeastLockedBytes = 64 << 20;

constexpr const char* kNoDevice = "this host has no RDMA device";

/// Returns the rate of a port in 10^6 bits per second, by the codes of its width and speed.
std::uint32_t rate_of(const ibv_port_attr& port) {
  const auto lanes = [&]() -> std::uint32_t {
    switch (port.active_width) {
      case 2:
        return 4;
      case 4:
        return 8;
      case 8:
        return 12;
      case 16:
        return 2;
      default:
        return 1;
    }
  }();
  const auto lane = [&]() -> std::uint32_t {
    switch (port.active_speed) {
      case 1:
        return 2'500;
      case 2:
        return 5'000;
      case 16:
        return 14'000;
      case 32:
        return 25'000;
      case 64:
        return 50'000;
      case 128:
        return 100'000;
      default:
        return 10'000;
    }
  }();
  return lanes * lane;
}

Fabric fabric_of(const ibv_gid_entry& entry) {
  if (entry.gid_type == IBV_GID_TYPE_ROCE_V1) return Fabric::kRoceV1;
  if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) return Fabric::kInfiniBand;
  constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::equal(kMapped.begin(), kMapped.end(), entry.gid.raw)) return Fabric::kRoceIpv4;
  const bool link_local = entry.gid.raw[0] == 0xfe && (entry.gid.raw[1] & 0xc0) == 0x80;
  return link_local ? Fabric::kRoceLinkLocal : Fabric::kRoceIpv6;
}

/// Chooses the GID of a port. Returns null if there is none, or not the one asked for.
const ibv_gid_entry* choose_gid(const std::vector<ibv_gid_entry>& entries, int port, int wanted) {
  const ibv_gid_entry* best = nullptr;
  for (const ibv_gid_entry& entry : entries) {
    if (entry.port_num != static_cast<std::uint32_t>(port)) continue;
    if (wanted >= 0) {
      if (entry.gid_index == static_cast<std::uint32_t>(wanted)) return &entry;
    } else if (fabric_of(entry) != Fabric::kRoceV1 &&
               (best == nullptr || fabric_of(entry) < fabric_of(*best))) {
      best = &entry;
    }
  }
  return best;
}

std::vector<ibv_gid_entry> gids_of(const VerbsDevice& device, int ports) {
  std::size_t most = 0;
  for (int port = 1; port <= ports; ++port) {
    ibv_port_attr attributes{};
    if (device.query(port, &attributes) == 0) {
      most += static_cast<std::size_t>(std::max(attributes.gid_tbl_len, 0));
    }
  }
  std::vector<ibv_gid_entry> entries(most);
  const ssize_t count = device.api->query_gid_table(device.context, entries.data(), entries.size(),
                                                    0, sizeof(ibv_gid_entry));
  entries.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  return entries;
}

/// Returns whether this process may register memory, as far as can be seen before it has to.
bool can_register(const VerbsDevice& device, VerbsHost::Hindrances* hindrances) {
  if (sys().locked_memory() >= kLeastLockedBytes) return true;
  // A process with the privilege to do so may lock more than the limit.
  void* memory = nullptr;
  if (sys().mmap(nullptr, kLeastLockedBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, &memory) < 0) {
    return true;
  }
  ibv_mr* const region =
      device.api->reg_mr(device.domain, memory, kLeastLockedBytes, IBV_ACCESS_LOCAL_WRITE);
  const int error = region == nullptr ? -errno : device.api->dereg_mr(region);
  sys().munmap(memory, kLeastLockedBytes);
  if (error < 0) {
    hindrances->fault = true;
    hindrances->add(verbs::describe_registration(kLeastLockedBytes, error, device.name));
  }
  return error >= 0;
}

} // namespace

VerbsDevice::~VerbsDevice() {
  regions.reset(); // before the domain in which they are
  if (domain != nullptr) api->dealloc_pd(domain);
  if (context != nullptr) api->close_device(context);
}

int VerbsDevice::query(int port, ibv_port_attr* out) const noexcept {
  // The library's function knows the first part of the structure, and writes no more.
  *out = {};
  const int result = api->query_port(context, static_cast<std::uint8_t>(port),
                                     reinterpret_cast<_compat_ibv_port_attr*>(out));
  return result > 0 ? -result : result;
}

VerbsHost* VerbsHost::instance(std::string* why) {
  // Most hosts have none, and loading the library for that would take milliseconds.
  std::error_code missing;
  if (std::filesystem::is_empty("/sys/class/infiniband", missing) || missing) {
    *why = kNoDevice;
    return nullptr;
  }
  const VerbsApi* const api = find_verbs_api(why);
  if (api == nullptr) return nullptr;
  static std::mutex mutex;
  static VerbsHost* host = nullptr; // never destroyed: threads may outlive main()
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  if (owner != ::getpid()) { // devices that a parent has opened are the parent's
    host = new VerbsHost(*api);
    owner = ::getpid();
  }
  return host;
}

/// Returns the device, opened; null, and adds the reason, if that is impossible. The caller
/// holds mutex_.
VerbsDevice* VerbsHost::open(ibv_device* device, Hindrances* hindrances) {
  const std::string name = api_.get_device_name(device);
  for (const auto& known : opened_) {
    if (known->name == name) return known.get();
  }
  if (device->transport_type != IBV_TRANSPORT_IB) {
    hindrances->add(fmt::format("{} is neither InfiniBand nor RoCE", name));
    return nullptr;
  }
  auto opened = std::make_unique<VerbsDevice>();
  opened->api = &api_;
  opened->name = name;
  opened->context = api_.open_device(device);
  if (opened->context == nullptr) {
    hindrances->fault = true;
    hindrances->add(
        fmt::format("{} cannot be opened: {}; the user needs access to "
                    "/dev/infiniband/uverbs*, in a container too",
                    name, errno_text(-errno)));
    return nullptr;
  }
  opened->domain = api_.alloc_pd(opened->context);
  if (opened->domain == nullptr || api_.query_device(opened->context, &opened->limits) != 0) {
    hindrances->add(fmt::format("{} cannot be used: {}", name, errno_text(-errno)));
    return nullptr;
  }
  if (!can_register(*opened, hindrances)) return nullptr;
  return opened_.emplace_back(std::move(opened)).get();
}

std::vector<VerbsPort> VerbsHost::ports(const VerbsSettings& settings, Hindrances* hindrances) {
  std::vector<VerbsPort> found;
  if (settings.disabled) {
    hindrances->add("WHORL_IB_DISABLE (or NCCL_IB_DISABLE) is 1");
    return found;
  }
  const std::lock_guard lock(mutex_);
  std::size_t admitted = 0; // number of ports that may be used, with a link or without
  int count = 0;
  ibv_device** const devices = api_.get_device_list(&count);
  if (devices == nullptr || count == 0) hindrances->add(kNoDevice);
  for (int i = 0; i < count && devices != nullptr; ++i) {
    VerbsDevice* const device = open(devices[i], hindrances);
    if (device == nullptr) continue;
    const int ports = device->limits.phys_port_cnt;
    const std::vector<ibv_gid_entry> gids = gids_of(*device, ports);
    for (int number = 1; number <= ports; ++number) {
      const std::string name = fmt::format("{}:{}", device->name, number);
      if (!settings.filter.admits(device->name, number)) {
        hindrances->add(name + " is not among those of WHORL_IB_HCA");
        continue;
      }
      ++admitted;
      ibv_port_attr attributes{};
      if (device->query(number, &attributes) != 0 || attributes.state != IBV_PORT_ACTIVE) {
        hindrances->add(name + " has no link");
        continue;
      }
      const ibv_gid_entry* const gid = choose_gid(gids, number, settings.gid_index);
      if (gid == nullptr) {
        hindrances->add(settings.gid_index < 0
                            ? name + " has no GID; its network interface has no address"
                            : fmt::format("{} has no GID with index {}", name, settings.gid_index));
        continue;
      }
      VerbsPort port{.device = device, .number = number};
      port.gid_index = static_cast<int>(gid->gid_index);
      port.address = {.fabric = attributes.link_layer == IBV_LINK_LAYER_ETHERNET
                                    ? fabric_of(*gid)
                                    : Fabric::kInfiniBand,
                      .mtu = static_cast<std::uint8_t>(attributes.active_mtu),
                      .lid = attributes.lid,
                      .rate = static_cast<std::uint16_t>(rate_of(attributes) / 100)};
      port.address.needs_grh = (attributes.flags & IBV_QPF_GRH_REQUIRED) != 0;
      port.address.number = static_cast<std::uint8_t>(admitted - 1);
      std::memcpy(port.address.gid.data(), gid->gid.raw, port.address.gid.size());
      found.push_back(port);
    }
  }
  if (devices != nullptr) api_.free_device_list(devices);
  return found;
}

} // namespace whorl
