#pragma once

#include <cstdint>

#include "gpu/fifo_layout.h"

namespace whorl::gpu {
namespace {

/// Block of a kernel, from the view of one of its threads; interpret.h says what the functions do.
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

} // namespace
} // namespace whorl::gpu
