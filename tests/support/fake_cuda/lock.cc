#include "tests/support/fake_cuda/lock.h"

#include <array>
#include <mutex>

#include "tests/support/fake_cuda/contexts.h"
#include "tests/support/fake_cuda/device.h"

namespace fake_cuda {
namespace {

std::recursive_mutex& mutex_of(int device) {
  static auto& all = *new std::array<std::recursive_mutex, kMaxDevices>; // outlives all threads
  return all[static_cast<std::size_t>(device)];
}

} // namespace

DriverLock::DriverLock(int device) : device_(device) { mutex_of(device).lock(); }
DriverLock::DriverLock() : DriverLock(current_device()) {}
DriverLock::DriverLock(CUstream stream) : DriverLock(stream_of(stream).device()) {}
DriverLock::DriverLock(CUevent event) : DriverLock(event_of(event)->device()) {}
DriverLock::~DriverLock() { mutex_of(device_).unlock(); }

} // namespace fake_cuda
