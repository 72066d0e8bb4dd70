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

/// Does `times` times what a cost is asked of. `word` is in device or host memory.
template <class Do>
__device__ void repeat(Costs& costs, Do&& act) {
  const long long begin = clock64();
  std::uint32_t sum = 0;
  for (int i = 0; i < costs.times; ++i) sum += act(i);
  if (blockIdx.x != 0) return;
  costs.out[0] = static_cast<std::uint64_t>(clock64() - begin);
  costs.out[1] = sum; // so that no load is left out
}

} // namespace

extern "C" __global__ void perf_empty() {}

// Measures what the parts of a message between blocks cost one thread, in cycles.
extern "C" __global__ void perf_costs(Costs costs) {
  std::uint32_t* const word = costs.word + blockIdx.x * costs.stride;
  switch (costs.act) {
    case Costs::kAcquire:
      return repeat(costs, [&](int) {
        std::uint32_t value;
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
        return value;
      });
    case Costs::kRelaxed:
      return repeat(costs, [&](int) {
        std::uint32_t value;
        asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
        return value;
      });
    case Costs::kRelease:
      return repeat(costs, [&](int i) {
        asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(i) : "memory");
        return 0U;
      });
    case Costs::kFence:
      return repeat(costs, [&](int i) {
        asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(i) : "memory");
        asm volatile("fence.acq_rel.sys;" ::: "memory");
        return 0U;
      });
    case Costs::kFenceOfDevice:
      return repeat(costs, [&](int i) {
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(i) : "memory");
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
        return 0U;
      });
    case Costs::kTimer:
      return repeat(costs, [&](int) {
        std::uint64_t now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        return static_cast<std::uint32_t>(now);
      });
    case Costs::kSleep:
      return repeat(costs, [&](int) {
        __nanosleep(20);
        return 0U;
      });
    case Costs::kBarrier:
      return repeat(costs,
                    [&](int i) { return static_cast<std::uint32_t>(__syncthreads_or(i < 0)); });
  }
}

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
