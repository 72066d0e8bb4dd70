// Kernel of exchanges between pairs of ranks, whorl_exchange. Two blocks fit on a multiprocessor,
// so that one moves data while the other waits.

#include "gpu/exchange.h"

#include "gpu/device_block.h"

extern "C" __global__ void __launch_bounds__(whorl::gpu::kThreads, 2)
    whorl_exchange(const __grid_constant__ whorl::gpu::Launch launch) {
  using namespace whorl::gpu;
  __shared__ ExchangeMemory memory;
  DeviceBlock block;
  Exchange<DeviceBlock>(launch, blockIdx.x, blockIdx.y, memory, block).run();
}
