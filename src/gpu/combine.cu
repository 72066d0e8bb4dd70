// Kernels of one datatype, WHORL_TYPE (the name) and WHORL_DATA_TYPE (the enumerator):
// whorl_combine_<type>_<operator>_few and …_many. Some blocks work on a segment, see Grid. Compiled
// without contraction, so that products round as they do on the host.

#include "gpu/combine.h"
#include "kernels/reductions.h"

namespace whorl::gpu {
namespace {

/// Returns whether the block is to do nothing. The word may change at any time.
__device__ __forceinline__ bool is_cancelled(const Work& work) {
  const std::uint32_t block = blockIdx.y * gridDim.x + blockIdx.x;
  return *static_cast<const volatile std::uint32_t*>(work.cancelled->of_block(block)) != 0;
}

template <ReduceOp kOp, bool kFew>
__device__ __forceinline__ void combine(const Work& work) {
  using R = kernels::Reduction<DataType::WHORL_DATA_TYPE, kOp>;
  // The word is in host memory: one thread of a block reads it for all.
  if (work.cancelled != nullptr &&
      __syncthreads_or(threadIdx.x == 0 && is_cancelled(work) ? 1 : 0) != 0) {
    return;
  }
  const Share share = share_of(work, {gridDim.x, gridDim.y, blockDim.x}, blockIdx.x, blockIdx.y);
  const Lane lane{share.index * static_cast<std::uint64_t>(blockDim.x) + threadIdx.x,
                  share.blocks * static_cast<std::uint64_t>(blockDim.x)};
  Combine<typename R::Format, typename R::Function, R::kMayDivide, kFew>(
      SegmentOperands(work, work.segments[share.segment]))
      .run(lane);
}

} // namespace

#define WHORL_NAME_(type, op, sources) whorl_combine_##type##_##op##_##sources
#define WHORL_NAME(type, op, sources) WHORL_NAME_(type, op, sources)
#define WHORL_KERNELS(op, enumerator)                                       \
  extern "C" __global__ void __launch_bounds__(kThreads, 2)                 \
      WHORL_NAME(WHORL_TYPE, op, few)(const __grid_constant__ Work work) {  \
    combine<ReduceOp::enumerator, true>(work);                              \
  }                                                                         \
  extern "C" __global__ void __launch_bounds__(kThreads, 2)                 \
      WHORL_NAME(WHORL_TYPE, op, many)(const __grid_constant__ Work work) { \
    combine<ReduceOp::enumerator, false>(work);                             \
  }

WHORL_KERNELS(sum, kSum)
WHORL_KERNELS(prod, kProd)
WHORL_KERNELS(max, kMax)
WHORL_KERNELS(min, kMin)
#if WHORL_HAS_BITS
WHORL_KERNELS(band, kBand)
WHORL_KERNELS(bor, kBor)
WHORL_KERNELS(bxor, kBxor)
#endif

} // namespace whorl::gpu
