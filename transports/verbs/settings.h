#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace whorl {

/// Choice of RDMA devices and ports by name, as WHORL_IB_HCA (and NCCL_IB_HCA) writes it.
class PortFilter {
 public:
  /// Reads "mlx5_0,mlx5_2:1"; "=" in front asks for whole names instead of beginnings, "^" for all
  /// others. Empty admits everything.
  static Result<PortFilter> parse(std::string_view text);
  bool admits(std::string_view device, int port) const noexcept;

 private:
  struct Entry {
    std::string device;
    int port = 0; ///< 0: any
  };
  std::vector<Entry> entries_;
  bool exact_ = false;
  bool excluding_ = false;
};

/// Settings of the verbs transport, from the variables WHORL_IB_*.
struct VerbsSettings {
  bool disabled = false;
  PortFilter filter;
  int gid_index = -1; ///< −1: the best one
  std::uint8_t traffic_class = 0;
  std::uint8_t service_level = 0;
  std::uint8_t timeout = 18;
  std::uint8_t retry_count = 6;
  std::uint16_t pkey_index = 0;
  std::size_t rails = 1;

  /// Reads the environment. The error names the variable.
  static Result<VerbsSettings> from_environment();
};

} // namespace whorl
