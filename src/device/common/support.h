#pragma once

#include <string>

namespace whorl {

/// Why buffers cannot be memory of a device, a sentence; empty if nothing speaks against it: this
/// build has support for it and the machine a driver that should work. More than
/// devices_possible(), and dearer: the first call opens the driver's management library. Any
/// thread.
std::string why_no_device_support();

} // namespace whorl
