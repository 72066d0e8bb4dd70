// Baseline kernels that whorl's kernels are compared with.

#include "perf/gpu/kernels.h"

namespace perf::gpu {
namespace {

__device__ __forceinline__ Lane lane_of_grid() {
  return {blockIdx.x * static_cast<std::uint64_t>(blockDim.x) + threadIdx.x,
          gridDim.x * static_cast<std::uint64_t>(blockDim.x)};
}

__device__ __forceinline__ std::uint32_t load_acquire(const std::uint32_t* word) {
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

__device__ __forceinline__ void store_release(std::uint32_t* word, std::uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

} // namespace

extern "C" __global__ void perf_empty() {}

extern "C" __global__ void __launch_bounds__(kThreads)
    perf_triad(const __grid_constant__ Triad work) {
  work.run(lane_of_grid());
}

extern "C" __global__ void __launch_bounds__(kThreads)
    perf_fill(const __grid_constant__ Fill work) {
  work.run(lane_of_grid());
}

// Runs a ring allreduce. Launched cooperatively: all blocks run at the same time, so that they may
// wait for each other.
extern "C" __global__ void __launch_bounds__(kThreads)
    perf_ring(const __grid_constant__ RingWork work) {
  const int rank = static_cast<int>(blockIdx.x) / work.channels;
  const int channel = static_cast<int>(blockIdx.x) % work.channels;
  const int before = (rank + work.ranks - 1) % work.ranks;
  std::uint32_t* const own = work.flags + blockIdx.x;
  const std::uint32_t* const theirs = work.flags + before * work.channels + channel;
  // All flags are equal between launches of the same number of channels; only the block itself
  // changes its own flag.
  const std::uint32_t begin = *own;
  const Lane lane{threadIdx.x, blockDim.x};
  for (int t = 0; t < work.steps(); ++t) {
    const std::uint32_t reached = begin + static_cast<std::uint32_t>(t);
    if (t > 0 && threadIdx.x == 0) {
      while (static_cast<std::int32_t>(load_acquire(theirs) - reached) < 0) {
      }
    }
    __syncthreads();
    work.step(rank, channel, t, lane);
    __syncthreads();
    if (threadIdx.x == 0) store_release(own, reached + 1);
  }
}

} // namespace perf::gpu
