#include "device/common/support.h"

#include "gpu/driver.h"
#include "gpu/trouble.h"

namespace whorl {

std::string why_no_device_support() {
  // What is known of the machine says more than that the library is missing.
  if (!gpu::driver_trouble().empty()) return gpu::driver_trouble();
  return gpu::driver_error();
}

} // namespace whorl
