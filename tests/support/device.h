#pragma once

// Device memory and streams for tests. They link with a driver: the real one, or fake_cuda.

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace whorl::test {

/// Makes the primary context of a device the thread's.
class DeviceContext {
 public:
  explicit DeviceContext(int ordinal = 0) {
    CUcontext context = nullptr;
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(cuDeviceGet(&device_, ordinal), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, device_), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
  }
  ~DeviceContext() {
    CUcontext context = nullptr;
    static_cast<void>(cuCtxPopCurrent(&context));
    static_cast<void>(cuDevicePrimaryCtxRelease(device_));
  }
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

 private:
  CUdevice device_ = 0;
};

/// A stream that does not synchronise with the default stream.
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
  ~DeviceCopy() { EXPECT_EQ(cuMemFree(address_), CUDA_SUCCESS); }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;

  template <class T = std::byte>
  T* data() const {
    return reinterpret_cast<T*>(address_);
  }
  /// Queues the copy back.
  void read(std::span<std::byte> to, CUstream stream) const {
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
