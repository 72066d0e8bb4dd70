// Interpreters of one datatype, WHORL_TYPE (the name) and WHORL_DATA_TYPE (the enumerator):
// whorl_interpret_<type>_<operator>. Without a datatype, the one that only moves bytes:
// whorl_interpret_copy. Compiled without contraction, as combine.cu is.

#include "gpu/interpret.h"

#include "gpu/device_block.h"
#include "kernels/reductions.h"

namespace whorl::gpu {
namespace {

template <class Moves>
__device__ __forceinline__ void interpret(const Launch& launch) {
  __shared__ BlockMemory memory;
  DeviceBlock block;
  if (launch.form == LaunchForm::kDirect) {
    DirectExchange<Moves, DeviceBlock>(launch, blockIdx.x, blockIdx.y, memory, block).run();
  } else {
    Interpreter<Moves, DeviceBlock>(launch, blockIdx.x, blockIdx.y, memory, block).run();
  }
}

} // namespace

#ifdef WHORL_TYPE
#define WHORL_NAME_(type, op) whorl_interpret_##type##_##op
#define WHORL_NAME(type, op) WHORL_NAME_(type, op)
#define WHORL_KERNEL(op, enumerator)                                                            \
  extern "C" __global__ void __launch_bounds__(kThreads, 1)                                     \
      WHORL_NAME(WHORL_TYPE, op)(const __grid_constant__ Launch launch) {                       \
    interpret<Reductions<kernels::Reduction<DataType::WHORL_DATA_TYPE, ReduceOp::enumerator>>>( \
        launch);                                                                                \
  }

WHORL_KERNEL(sum, kSum)
WHORL_KERNEL(prod, kProd)
WHORL_KERNEL(max, kMax)
WHORL_KERNEL(min, kMin)
#if WHORL_HAS_BITS
WHORL_KERNEL(band, kBand)
WHORL_KERNEL(bor, kBor)
WHORL_KERNEL(bxor, kBxor)
#endif
#else
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    whorl_interpret_copy(const __grid_constant__ Launch launch) {
  interpret<Copies>(launch);
}
#endif

} // namespace whorl::gpu
