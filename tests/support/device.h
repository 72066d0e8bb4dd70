#pragma once

// Device memory and streams for tests, which link with a driver: the real one, or fake_cuda.

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace whorl::test {

/// Returns the primary context of a device, which is never released: the last release would reset
/// the context with all state that the library keeps there.
inline CUcontext primary_context(int ordinal) {
  static std::mutex mutex;
  static std::map<int, CUcontext> retained;
  const std::lock_guard lock(mutex);
  CUcontext& context = retained[ordinal];
  CUdevice device = 0;
  if (context == nullptr) {
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(cuDeviceGet(&device, ordinal), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
  }
  return context;
}

/// Scope in which the primary context of a device is current on the thread.
class DeviceContext {
 public:
  explicit DeviceContext(int ordinal = 0) {
    EXPECT_EQ(cuCtxPushCurrent(primary_context(ordinal)), CUDA_SUCCESS);
  }
  ~DeviceContext() {
    CUcontext context = nullptr;
    static_cast<void>(cuCtxPopCurrent(&context));
  }
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;
};

/// Stream that does not synchronise with the default stream.
class DeviceQueue {
 public:
  DeviceQueue() { EXPECT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS); }
  ~DeviceQueue() { EXPECT_EQ(cuStreamDestroy(stream_), CUDA_SUCCESS); }
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;
  CUstream get() const { return stream_; }
  void synchronize() const { EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS); }

 private:
  CUstream stream_ = nullptr;
};

/// Scope in which memory of DeviceCopy is kept; its end frees the memory, with a context current.
/// Freeing memory waits for all streams of the context, and a stream of another thread's rank may
/// wait for a call of this thread. Only one scope at a time.
class KeepMemory {
 public:
  KeepMemory() { kept().on = true; }
  ~KeepMemory() {
    kept().on = false;
    for (const CUdeviceptr address : kept().all) EXPECT_EQ(cuMemFree(address), CUDA_SUCCESS);
    kept().all.clear();
  }
  KeepMemory(const KeepMemory&) = delete;
  KeepMemory& operator=(const KeepMemory&) = delete;
  /// Returns whether the memory is kept; if not, the caller frees it.
  static bool keep(CUdeviceptr address) {
    const std::lock_guard lock(kept().mutex);
    if (kept().on) kept().all.push_back(address);
    return kept().on;
  }

 private:
  struct Kept {
    std::mutex mutex;
    bool on = false; ///< flag that changes only while the process has a single thread
    std::vector<CUdeviceptr> all;
  };
  static Kept& kept() {
    static Kept instance;
    return instance;
  }
};

/// Device memory with the contents of host memory.
class DeviceCopy {
 public:
  DeviceCopy(std::span<const std::byte> contents, CUstream stream) : bytes_(contents.size()) {
    EXPECT_EQ(cuMemAlloc(&address_, bytes_), CUDA_SUCCESS);
    EXPECT_EQ(
        cuMemcpyAsync(address_, reinterpret_cast<CUdeviceptr>(contents.data()), bytes_, stream),
        CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS); // contents may be temporary
  }
  template <class T>
  DeviceCopy(const std::vector<T>& contents, CUstream stream)
      : DeviceCopy(std::as_bytes(std::span(contents)), stream) {}
  ~DeviceCopy() {
    if (KeepMemory::keep(address_)) return;
    EXPECT_EQ(cuMemFree(address_), CUDA_SUCCESS);
  }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;

  template <class T = std::byte>
  T* data() const {
    return reinterpret_cast<T*>(address_);
  }
  /// Copies back to the host behind all that is queued in the stream. Waits for the stream first: a
  /// thread in a copy of pageable memory behind a waiting stream holds up the driver's calls of all
  /// threads.
  void read(std::span<std::byte> to, CUstream stream) const {
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to.data()), address_, to.size(), stream),
              CUDA_SUCCESS);
  }
  template <class T>
  std::vector<T> read(CUstream stream) const {
    std::vector<T> values(bytes_ / sizeof(T));
    read(std::as_writable_bytes(std::span(values)), stream);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    return values;
  }

 private:
  CUdeviceptr address_ = 0;
  std::size_t bytes_;
};

} // namespace whorl::test
