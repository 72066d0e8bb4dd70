// Interpreters of one datatype, WHORL_TYPE (the name) and WHORL_DATA_TYPE (the enumerator):
// whorl_interpret_<type>_<operator>. Without a datatype, the one that only moves bytes:
// whorl_interpret_copy. Compiled without contraction, as combine.cu is.

#include "gpu/interpret.h"
#include "kernels/reductions.h"

namespace whorl::gpu {
namespace {

struct DeviceBlock {
  __device__ std::uint64_t index() const { return threadIdx.x; }
  __device__ std::uint64_t count() const { return blockDim.x; }
  __device__ void sync() const { __syncthreads(); }
  __device__ bool any(bool value) const { return __syncthreads_or(value ? 1 : 0) != 0; }
  __device__ std::uint64_t acquire(const std::uint64_t* flag) const {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    return value;
  }
  __device__ void release(std::uint64_t* flag, std::uint64_t value) const {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
  }
  __device__ std::uint64_t peek(const std::uint64_t* flag) const {
    std::uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    return value;
  }
  __device__ void post(std::uint64_t* flag, std::uint64_t value) const {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
  }
  __device__ void post(std::uint32_t* word, std::uint32_t value) const {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
  }
  __device__ Line get(const Line* line) const {
    Line found;
    asm volatile(
        "{ .reg .b128 whole; ld.relaxed.sys.global.b128 whole, [%2]; mov.b128 {%0, %1}, whole; }"
        : "=l"(found.data), "=l"(found.number)
        : "l"(line)
        : "memory");
    return found;
  }
  __device__ void put(Line* to, const Line& line) const {
    asm volatile(
        "{ .reg .b128 whole; mov.b128 whole, {%1, %2}; st.relaxed.sys.global.b128 [%0], whole; }" ::
            "l"(to),
        "l"(line.data), "l"(line.number)
        : "memory");
  }
  __device__ std::uint32_t look(const std::uint32_t* word) const {
    return *static_cast<const volatile std::uint32_t*>(word);
  }
  __device__ void publish(std::uint32_t* word, std::uint32_t value) const {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
  }
  __device__ std::uint32_t add(std::uint32_t* word, std::uint32_t value) const {
    __threadfence();
    return atomicAdd(word, value);
  }
  __device__ std::uint64_t now_ns() const {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }
  __device__ void pause() const {}
};

template <class Moves>
__device__ __forceinline__ void interpret(const Launch& launch) {
  __shared__ BlockMemory memory;
  DeviceBlock block;
  if (launch.direct.is_used != 0) {
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
