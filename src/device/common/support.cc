#include "device/common/support.h"

#include "gpu/driver.h"
#include "gpu/driver_diagnostics.h"

namespace whorl {

std::string why_no_device_support() {
  // The diagnostics of the machine say more than that the library is missing.
  if (!gpu::driver_diagnostics().empty()) return gpu::driver_diagnostics();
  return gpu::driver_error();
}

} // namespace whorl
