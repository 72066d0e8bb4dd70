#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transports/verbs/api.h"
#include "transports/verbs/regions.h"
#include "transports/verbs/settings.h"
#include "transports/verbs/wire.h"

namespace whorl {

/// RDMA device that this process has opened.
struct VerbsDevice {
  const VerbsApi* api = nullptr;
  std::string name;
  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  ibv_device_attr limits{};
  std::unique_ptr<VerbsRegions> regions = std::make_unique<VerbsRegions>(*this);

  VerbsDevice() = default;
  VerbsDevice(const VerbsDevice&) = delete;
  VerbsDevice& operator=(const VerbsDevice&) = delete;
  ~VerbsDevice();

  /// Reads the state of a port; returns 0 or −errno.
  int query(int port, ibv_port_attr* out) const noexcept;
};

/// Port by which this rank may be reached.
struct VerbsPort {
  VerbsDevice* device = nullptr; ///< owned by a VerbsHost
  int number = 1;
  int gid_index = 0;
  verbs::PortAddress address;
};

/// RDMA devices of this host. Each is opened once in a process and then stays open. Any thread.
class VerbsHost {
 public:
  explicit VerbsHost(const VerbsApi& api) : api_(api) {}

  /// Returns the devices of this process, with functions of libibverbs; null, and the reason in
  /// `*why`, where that library is absent. A child of fork() opens the devices itself.
  static VerbsHost* instance(std::string* why);

  /// Reasons why devices or ports are of no use.
  struct Hindrances {
    std::string why;    ///< one after the other; empty: there are none
    bool fault = false; ///< true: a device is there and works, but this process may not use it
    void add(const std::string& reason) { why += (why.empty() ? "" : "; ") + reason; }
  };
  /// Lists the ports that have a link and may be used, and says what hinders the others.
  std::vector<VerbsPort> ports(const VerbsSettings& settings, Hindrances* hindrances);

 private:
  VerbsDevice* open(ibv_device* device, Hindrances* hindrances);

  const VerbsApi& api_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<VerbsDevice>> opened_;
};

} // namespace whorl
