// P6: visibility between running kernels of different streams. Two kernels in PTX, which the driver
// compiles.
#include <chrono>
#include <thread>

#include "tests/gpu/facts.h"

namespace whorl::facts {
namespace {

// Kernel meet: each block writes 1 to `mine`, then polls `other` until it is not 0 or `limit`
// nanoseconds have passed, and writes 1 to `seen` in the first case. Kernel tell: writes 1 to
// `flag`.
constexpr char kKernels[] = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry meet(.param .u64 mine, .param .u64 other, .param .u64 seen, .param .u64 limit)
{
  .reg .b64 %rd<8>;
  .reg .b32 %r<4>;
  .reg .pred %p<4>;
  ld.param.u64 %rd1, [mine];
  ld.param.u64 %rd2, [other];
  ld.param.u64 %rd3, [seen];
  ld.param.u64 %rd4, [limit];
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra OVER;
  mov.u32 %r2, 1;
  st.release.sys.global.u32 [%rd1], %r2;
  mov.u64 %rd5, %globaltimer;
LOOK:
  ld.acquire.sys.global.u32 %r3, [%rd2];
  setp.ne.u32 %p2, %r3, 0;
  @%p2 bra SEEN;
  mov.u64 %rd6, %globaltimer;
  sub.u64 %rd7, %rd6, %rd5;
  setp.lt.u64 %p3, %rd7, %rd4;
  @%p3 bra LOOK;
  bra OVER;
SEEN:
  st.release.sys.global.u32 [%rd3], %r2;
OVER:
  ret;
}
.visible .entry tell(.param .u64 flag)
{
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [flag];
  mov.u32 %r1, 1;
  st.release.sys.global.u32 [%rd1], %r1;
  ret;
}
)";
constexpr unsigned kThreads = 32;
constexpr std::uint64_t kLimitNs = 2'000'000'000;

CUfunction kernel(const char* name) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  int registers = 0;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&function, module, name));
  NEED(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function)); // loads it
  return function;
}

void meet(CUfunction function, bool cooperative, unsigned blocks, CUstream stream, CUdeviceptr mine,
          CUdeviceptr other, CUdeviceptr seen) {
  std::uint64_t limit = kLimitNs;
  void* parameters[] = {&mine, &other, &seen, &limit};
  if (cooperative) {
    NEED(cuLaunchCooperativeKernel(function, blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters));
  } else {
    NEED(cuLaunchKernel(function, blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters, nullptr));
  }
}

/// Runs two kernels that wait for each other, each with 1/`part` of the blocks that fit.
void side_by_side(bool first, bool second, unsigned part) {
  enter();
  const CUfunction function = kernel("meet");
  int processors = 0, blocks = 0;
  NEED(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  NEED(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, kThreads, 0));
  const unsigned each = part == 0 ? 1 : static_cast<unsigned>(processors * blocks) / part;
  const CUstream streams[] = {new_stream(), new_stream()};
  const CUdeviceptr flags = device_memory(256);
  NEED(cuMemsetD8Async(flags, 0, 256, streams[0]));
  NEED(cuStreamSynchronize(streams[0]));
  const Word seen[2];
  meet(function, first, each, streams[0], flags, flags + 128, seen[0].address());
  meet(function, second, each, streams[1], flags + 128, flags, seen[1].address());
  for (const CUstream stream : streams) NEED(cuStreamSynchronize(stream));
  const bool both = seen[0].value() == 1 && seen[1].value() == 1;
  std::printf("%u blocks each, they run %s\n", each, both ? "side by side" : "one after the other");
}

using Write = std::function<void(CUdeviceptr flag, CUstream stream)>;

/// Runs a kernel that polls a flag in its own device's memory while a write from elsewhere arrives.
/// `prepare` makes all that the write needs before, since making it may wait for the kernel.
void sees_the_write(const std::function<Write()>& prepare) {
  enter();
  const CUfunction function = kernel("meet");
  const Write write = prepare();
  const CUstream polls = new_stream(), writes = new_stream();
  const CUdeviceptr flag = device_memory(128);
  NEED(cuMemsetD8Async(flag, 0, 128, polls));
  NEED(cuStreamSynchronize(polls));
  const Word begun, seen;
  meet(function, true, 1, polls, begun.address(), flag, seen.address());
  while (begun.value() == 0) std::this_thread::yield();
  write(flag, writes);
  NEED(cuStreamSynchronize(polls));
  std::puts(seen.value() == 1 ? "is seen" : "is NOT seen in two seconds");
}

Write copy_from_host() {
  const Word one;
  one.open();
  return [one](CUdeviceptr flag, CUstream stream) {
    NEED(cuMemcpyAsync(flag, one.address(), 4, stream));
  };
}
Write set_bytes() {
  return [](CUdeviceptr flag, CUstream stream) { NEED(cuMemsetD8Async(flag, 1, 4, stream)); };
}
Write write_value() {
  return [](CUdeviceptr flag, CUstream stream) {
    NEED(cuStreamWriteValue32(stream, flag, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  };
}
Write by_kernel() {
  return [function = kernel("tell")](CUdeviceptr flag, CUstream stream) {
    void* parameters[] = {&flag};
    NEED(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  };
}

} // namespace

void ask_about_kernels() {
  for (const unsigned part : {0U, 2U}) {
    const std::string fit = part == 0 ? "of one block" : "of half of what fits";
    ask("P6 two cooperative launches " + fit, [=] { side_by_side(true, true, part); });
    ask("P6 an ordinary launch beside a cooperative one, " + fit,
        [=] { side_by_side(true, false, part); });
    ask("P6 a cooperative launch beside an ordinary one, " + fit,
        [=] { side_by_side(false, true, part); });
  }
  ask("P6 a flag that a copy from the host writes while a kernel polls it",
      [] { sees_the_write(copy_from_host); });
  ask("P6 … that a memset writes", [] { sees_the_write(set_bytes); });
  ask("P6 … that a stream writes", [] { sees_the_write(write_value); });
  ask("P6 … that a kernel of another stream writes", [] { sees_the_write(by_kernel); });
}

} // namespace whorl::facts
