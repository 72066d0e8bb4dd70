#pragma once

#include <string>

namespace whorl {

/// Returns a sentence that says why buffers cannot be device memory; empty if this build supports
/// devices and the machine has a driver that should work. Checks more than devices_possible() and
/// takes longer: the first call opens the driver's management library. Any thread.
std::string why_no_device_support();

} // namespace whorl
