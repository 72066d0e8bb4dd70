#include "device/common/late_calls.h"

#include <fmt/core.h>

namespace whorl {

Status late_error(const std::string& name, const Request& request, const std::string& missing,
                  std::uint64_t timeout_ns, bool one_process) {
  return Status::error(
      Code::kRemoteError,
      fmt::format(
          "no progress for {:.1f} s. {} in {}: waiting for {} to make the call. {} thread that "
          "acts for several ranks must make their calls between whorlGroupStart and whorlGroupEnd",
          static_cast<double>(timeout_ns) * 1e-9, name, describe(request), missing,
          one_process ? "One" : "Ranks that share a device wait for each other's calls; one"));
}

} // namespace whorl
