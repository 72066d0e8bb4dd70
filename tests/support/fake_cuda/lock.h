#pragma once

// The lock of the driver. The real driver has one for each context, which nearly all of its calls
// take. A call that waits for streams keeps the lock, so that calls of all other threads wait as
// well, whatever streams they are for: freeing memory, ending a registration, loading kernels
// (driver_facts P1, P2), and copies to and from pageable memory, of which the real driver is
// suspected (docs/gpu_tests.md). Calls whose purpose is to wait, for a stream, an event or the
// context, do so without it; calls that only concern the calling thread, or only ask for
// attributes, do not take it.

#include <cuda.h>

namespace fake_cuda {

/// Lock of a context for the lifetime of the object. A thread may hold it several times.
class DriverLock {
 public:
  DriverLock(); ///< takes the lock of the current context, or of the first one
  explicit DriverLock(CUstream stream);
  explicit DriverLock(CUevent event);
  ~DriverLock();
  DriverLock(const DriverLock&) = delete;
  DriverLock& operator=(const DriverLock&) = delete;

 private:
  explicit DriverLock(int device);
  const int device_;
};

} // namespace fake_cuda
