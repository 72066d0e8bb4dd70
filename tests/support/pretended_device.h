#pragma once

// What only a pretended device does, see fake_cuda. Linked with a real driver, nothing here
// happens.

#include <cuda.h>
#include <dlfcn.h>

#include <chrono>
#include <thread>

namespace whorl::test {

template <class Function>
Function* of_pretended_device(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// Whether the device is a pretended one.
inline bool device_is_pretended() {
  return of_pretended_device<void(long)>("fake_cuda_allow_copies") != nullptr;
}

/// All copies after the next n fail; −1: none.
inline void allow_copies(long n) { of_pretended_device<void(long)>("fake_cuda_allow_copies")(n); }

/// The next n IPC handles cannot be opened by this process, nor descriptors of physical memory.
inline void refuse_ipc(long n) { of_pretended_device<void(long)>("fake_cuda_refuse_ipc")(n); }

/// All mappings of physical memory after the next n fail; −1: none.
inline void allow_mappings(long n) {
  of_pretended_device<void(long)>("fake_cuda_allow_mappings")(n);
}

/// Pieces of physical memory, mappings of it and reservations of addresses that this process has;
/// 0 on a real device.
inline long virtual_memory() {
  auto* const count = of_pretended_device<long()>("fake_cuda_virtual_memory");
  return count != nullptr ? count() : 0;
}
/// Allocations of other processes that this one has mapped.
inline long mapped_memory() { return of_pretended_device<long()>("fake_cuda_mapped")(); }

/// Waits until the driver has told of all graphs that are gone, which is all of them.
inline void wait_for_graphs_to_go() {
  auto* const objects = of_pretended_device<long()>("fake_cuda_user_objects");
  for (int i = 0; i < 10'000 && objects() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// The next n modules cannot be loaded.
inline void refuse_modules(long n) {
  of_pretended_device<void(long)>("fake_cuda_refuse_modules")(n);
}

/// Kernels that this process has queued.
inline long launches() { return of_pretended_device<long()>("fake_cuda_launches")(); }

/// Interpreters of schedules that this process has queued.
inline long interpreter_launches() {
  return of_pretended_device<long()>("fake_cuda_interpreter_launches")();
}
/// Keeps interpreters of schedules from beginning on a device of this process; −1: on none.
inline void hold_interpreters(int device) {
  of_pretended_device<void(int)>("fake_cuda_hold_launches")(device);
}

/// Threads that are inside a call of the driver which waits for all streams of a context.
inline int waiting_in_driver() { return of_pretended_device<int()>("fake_cuda_waiting")(); }

/// Calls so far that the real driver may let wait for streams: to allocate, register, map and free
/// memory, to load kernels.
inline long calls_that_may_wait() {
  return of_pretended_device<long()>("fake_cuda_calls_that_may_wait")();
}

/// Queues a kernel that accesses memory which it must not: when it runs, the device is lost to this
/// process, and nothing that frees memory there succeeds any more.
inline void queue_fault(CUstream stream) {
  of_pretended_device<void(CUstream)>("fake_cuda_fault")(stream);
}

} // namespace whorl::test
