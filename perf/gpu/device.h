#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "perf/common/api.h"

namespace perf::gpu {

// clang-format off
#define PERF_CUDA_FUNCTIONS(function)                                                             \
  function(cuCtxSetCurrent) function(cuDeviceGet) function(cuDeviceGetAttribute)                  \
  function(cuDeviceGetName) function(cuDevicePrimaryCtxRetain) function(cuDriverGetVersion)       \
  function(cuEventCreate) function(cuEventDestroy) function(cuEventElapsedTime)                   \
  function(cuEventRecord) function(cuEventRecordWithFlags) function(cuGetErrorName) function(cuGraphDestroy)                       \
  function(cuGraphExecDestroy) function(cuGraphInstantiate) function(cuGraphLaunch) function(cuInit)    \
  function(cuIpcGetEventHandle) function(cuIpcOpenEventHandle) function(cuLaunchCooperativeKernel)\
  function(cuLaunchKernel) function(cuMemAlloc) function(cuMemFree) function(cuMemFreeHost)       \
  function(cuMemGetInfo) function(cuMemHostAlloc) function(cuMemHostGetDevicePointer)             \
  function(cuMemHostRegister) function(cuMemHostUnregister) function(cuMemcpyAsync)               \
  function(cuModuleGetFunction) function(cuModuleLoadData)                                        \
  function(cuOccupancyMaxActiveBlocksPerMultiprocessor) function(cuStreamBeginCapture)            \
  function(cuStreamCreate) function(cuStreamDestroy) function(cuStreamEndCapture)                 \
  function(cuStreamSynchronize) function(cuStreamWaitEvent) function(cuStreamWaitValue32)         \
  function(cuStreamWriteValue32)
// clang-format on

/// Functions of the CUDA driver, which is loaded at run time.
struct Driver {
#define PERF_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  PERF_CUDA_FUNCTIONS(PERF_CUDA_MEMBER)
#undef PERF_CUDA_MEMBER
};
const Driver& driver();

/// Throws Failure with the driver's words unless `result` is success.
void check(CUresult result, const char* what);
#define PERF_CUDA(call) ::perf::gpu::check(::perf::gpu::driver().call, #call)

class Event {
 public:
  explicit Event(bool timed = true) {
    PERF_CUDA(cuEventCreate(&event_, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING));
  }
  ~Event() { static_cast<void>(driver().cuEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  [[nodiscard]] CUevent get() const { return event_; }

 private:
  CUevent event_ = nullptr;
};

/// Stream that does not wait for the default stream.
class Stream {
 public:
  Stream() { PERF_CUDA(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING)); }
  ~Stream() { static_cast<void>(driver().cuStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] CUstream get() const { return stream_; }
  void synchronize() const { PERF_CUDA(cuStreamSynchronize(stream_)); }

 private:
  CUstream stream_ = nullptr;
};

/// Device memory.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) { PERF_CUDA(cuMemAlloc(&address_, bytes)); }
  ~Memory() { static_cast<void>(driver().cuMemFree(address_)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] CUdeviceptr address() const { return address_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  CUdeviceptr address_ = 0;
  std::size_t bytes_;
};

/// Host memory that the device can access.
class Pinned {
 public:
  explicit Pinned(std::size_t bytes) { PERF_CUDA(cuMemHostAlloc(&memory_, bytes, 0)); }
  ~Pinned() { static_cast<void>(driver().cuMemFreeHost(memory_)); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  [[nodiscard]] CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(memory_); }

 private:
  void* memory_ = nullptr;
};

struct Costs;

/// First device, with the kernels of kernels.cu; current on the thread that constructs it.
class Device {
 public:
  Device();
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int driver_version() const { return driver_version_; }
  [[nodiscard]] int processors() const { return processors_; }
  /// Returns the size of the L2 cache.
  [[nodiscard]] std::size_t cache_bytes() const { return cache_bytes_; }
  [[nodiscard]] std::size_t free_bytes() const;
  /// Returns the peak rate of the device's memory: 2 · clock · width of the bus, in bytes per
  /// second; 0: unknown.
  [[nodiscard]] double peak() const { return peak_; }

  void empty(CUstream stream) const;
  /// Computes a[i] = b[i] + 3 c[i], over thirds of `bytes` from `base` on: reads two, writes the
  /// last.
  void triad(CUdeviceptr base, std::size_t bytes, CUstream stream) const;
  /// Copies the first half of the `bytes` at `base` to the second half.
  void copy(CUdeviceptr base, std::size_t bytes, CUstream stream) const;
  /// Fills with pseudorandom numbers of `type` (whorlDataType_t), see random_word().
  void fill(CUdeviceptr base, std::size_t bytes, int type, CUstream stream) const;
  /// Arguments of a ring allreduce of float sums, written for ranks whose blocks run at the same
  /// time.
  struct Ring;
  void ring(const Ring& ring, CUstream stream) const;
  /// Launches the empty kernel with as many blocks as the ring kernel has at most.
  void empty_together(CUstream stream, bool cooperative) const;
  /// Launches the kernel of `costs` with one thread in each block or, for barriers, all.
  void costs(const Costs& costs, CUstream stream) const;
  /// Returns the clock of the multiprocessors at its highest, in cycles per microsecond.
  [[nodiscard]] double cycles_per_us() const { return cycles_per_us_; }

 private:
  void launch(CUfunction function, unsigned blocks, void* parameter, CUstream stream) const;

  std::string name_;
  int driver_version_ = 0, processors_ = 1, ring_blocks_ = 1;
  std::size_t cache_bytes_ = 0;
  double peak_ = 0, cycles_per_us_ = 0;
  CUfunction empty_ = nullptr, triad_ = nullptr, fill_ = nullptr, ring_ = nullptr, costs_ = nullptr;
};

struct Device::Ring {
  std::vector<CUdeviceptr> send, recv;
  std::size_t bytes; ///< bytes of each rank; a multiple of 16
  CUdeviceptr flags; ///< kMaxRingBlocks words that were zeroed once
};
inline constexpr std::size_t kMaxRingBlocks = 1024;

} // namespace perf::gpu
