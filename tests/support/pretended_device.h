#pragma once

// Controls of the pretended device, see fake_cuda. Those that say what they do on a real device may
// be called there, the others only if device_is_pretended().

#include <cuda.h>
#include <dlfcn.h>

#include <chrono>
#include <thread>

namespace whorl::test {

template <class Function>
Function* of_pretended_device(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// Returns whether the device is a pretended one.
inline bool device_is_pretended() {
  return of_pretended_device<void(long)>("fake_cuda_allow_copies") != nullptr;
}

/// Makes all copies after the next n fail; −1: none.
inline void allow_copies(long n) { of_pretended_device<void(long)>("fake_cuda_allow_copies")(n); }

/// Makes the next n openings of IPC handles or of descriptors of physical memory fail in this
/// process.
inline void refuse_ipc(long n) { of_pretended_device<void(long)>("fake_cuda_refuse_ipc")(n); }

/// Makes all mappings of physical memory after the next n fail; −1: none.
inline void allow_mappings(long n) {
  of_pretended_device<void(long)>("fake_cuda_allow_mappings")(n);
}

/// Returns the number of this process's pieces of physical memory, mappings and address
/// reservations; 0 on a real device.
inline long virtual_memory() {
  auto* const count = of_pretended_device<long()>("fake_cuda_virtual_memory");
  return count != nullptr ? count() : 0;
}
/// Returns the number of allocations of other processes that this process has mapped.
inline long mapped_memory() { return of_pretended_device<long()>("fake_cuda_mapped")(); }

/// Waits until the driver has called the destructors of all user objects, that is, destroyed all
/// graphs.
inline void wait_for_graphs_to_go() {
  auto* const objects = of_pretended_device<long()>("fake_cuda_user_objects");
  for (int i = 0; i < 10'000 && objects() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Makes the next n loads of modules fail.
inline void refuse_modules(long n) {
  of_pretended_device<void(long)>("fake_cuda_refuse_modules")(n);
}

/// Returns the number of kernels that this process has queued.
inline long launches() { return of_pretended_device<long()>("fake_cuda_launches")(); }

/// Returns the number of schedule interpreters that this process has queued.
inline long interpreter_launches() {
  return of_pretended_device<long()>("fake_cuda_interpreter_launches")();
}
/// Returns the number of cooperative launches of this process; −1 on a real device.
inline long cooperative_launches() {
  auto* const count = of_pretended_device<long()>("fake_cuda_cooperative_launches");
  return count != nullptr ? count() : -1;
}
/// Keeps schedule interpreters from starting on a device of this process; −1: on none. Does nothing
/// on a real device.
inline void hold_interpreters(int device) {
  auto* const hold = of_pretended_device<void(int)>("fake_cuda_hold_launches");
  if (hold != nullptr) hold(device);
}

/// Returns the number of threads inside a driver call that waits for all streams of a context.
inline int waiting_in_driver() { return of_pretended_device<int()>("fake_cuda_waiting")(); }

/// Returns the number of calls so far that the real driver may make wait for streams: allocating,
/// registering, mapping and freeing memory, loading kernels.
inline long calls_that_may_wait() {
  return of_pretended_device<long()>("fake_cuda_calls_that_may_wait")();
}

/// Returns the number of calls so far that have freed or used what was made in a context before the
/// context's last reset.
inline long stale_calls() { return of_pretended_device<long()>("fake_cuda_stale_calls")(); }

/// Queues a kernel that accesses invalid memory: when it runs, this process loses the device, and
/// every later call that frees memory there fails.
inline void queue_fault(CUstream stream) {
  of_pretended_device<void(CUstream)>("fake_cuda_fault")(stream);
}

} // namespace whorl::test
