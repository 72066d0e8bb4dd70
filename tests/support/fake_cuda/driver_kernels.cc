// Functions of the driver for kernels. fake_cuda_hold_launches(device) keeps interpreters of
// schedules from starting on a device, until fake_cuda_hold_launches(−1).
// fake_cuda_interpreter_launches() returns the number of interpreters launched so far,
// fake_cuda_cooperative_launches() the number of cooperative launches.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include "gpu/exchange_messages.h"
#include "gpu/work.h"
#include "tests/support/fake_cuda/contexts.h"
#include "tests/support/fake_cuda/device.h"
#include "tests/support/fake_cuda/fault.h"
#include "tests/support/fake_cuda/lock.h"
#include "tests/support/fake_cuda/ptx_kernels.h"
#include "tests/support/host_interpreters.h"
#include "tests/support/host_kernels.h"

namespace {

using fake_cuda::Memory;
using fake_cuda::stream_of;

constexpr int kBlocksOfProcessor = 2;
constexpr unsigned kThreadsOfBlock = 2; ///< threads that imitate those of a block

/// Functions that are LaunchOf.
struct PerfKernels {
  std::mutex mutex;
  std::set<CUfunction> all;
};
PerfKernels& perf_kernels() {
  static auto& instance = *new PerfKernels;
  return instance;
}
bool is_perf_kernel(CUfunction function) {
  const std::lock_guard lock(perf_kernels().mutex);
  return perf_kernels().all.count(function) > 0;
}

std::atomic<int> held_device{-1};
std::atomic<long> cooperative_launches{0}, interpreter_launches{0};

/// Returns the launch with addresses that the host can access. Memory of a device that `device`
/// cannot access keeps its address, which the host cannot access either.
whorl::gpu::Launch reachable(const whorl::gpu::Launch& launch, int device) {
  whorl::gpu::Launch own = launch;
  Memory& memory = Memory::all();
  own.stop = memory.reach(launch.stop);
  own.reports = memory.reach(launch.reports);
  if (launch.programs != nullptr) own.programs = memory.reach(launch.programs);
  for (std::uint32_t r = 0; r < launch.fifos.nranks; ++r) {
    const int owner = memory.find(reinterpret_cast<std::uintptr_t>(launch.regions[r])).device;
    own.regions[r] =
        fake_cuda::reaches(device, owner) ? memory.reach(launch.regions[r]) : launch.regions[r];
  }
  for (std::uint32_t r = 0; r < launch.n_ranks; ++r) {
    own.ranks[r].input = memory.reach(launch.ranks[r].input);
    own.ranks[r].output = memory.reach(launch.ranks[r].output);
    own.ranks[r].scratch = memory.reach(launch.ranks[r].scratch);
    if (launch.form != whorl::gpu::LaunchForm::kExchange) continue;
    auto* const messages =
        reinterpret_cast<whorl::gpu::PairMessages*>(own.inline_programs + launch.ranks[r].program);
    for (std::uint32_t peer = 0; peer < launch.fifos.nranks; ++peer) {
      messages[peer].source = memory.reach(messages[peer].source);
      messages[peer].target = memory.reach(messages[peer].target);
    }
  }
  return own;
}

bool is_interpreter(CUfunction function) {
  const auto& all = whorl::test::host_interpreters();
  return std::any_of(all.begin(), all.end(), [&](const auto& entry) {
    return reinterpret_cast<CUfunction>(entry.second) == function;
  });
}

/// Queues a launch of an interpreter: each block is some threads, and all blocks run at the same
/// time.
CUresult interpret(CUfunction function, std::array<unsigned, 3> grid, std::array<unsigned, 3> block,
                   CUstream handle, void** parameters) {
  const auto& launch = *static_cast<const whorl::gpu::Launch*>(parameters[0]);
  if (grid != std::array{launch.lanes * launch.instances, launch.n_ranks, 1U} || block[0] == 0 ||
      block[0] > whorl::gpu::kThreads || block[1] != 1 || block[2] != 1) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++interpreter_launches;
  fake_cuda::Stream& stream = stream_of(handle);
  const unsigned threads = std::min(block[0], kThreadsOfBlock);
  stream.push([=, device = stream.device(), own = launch] {
    while (held_device == device) std::this_thread::sleep_for(std::chrono::microseconds(100));
    const fake_cuda::PtxGrid size{grid[0], grid[1], block[0]};
    if (fake_cuda::run_as_ptx(function, size, &own, sizeof own, device)) return;
    const whorl::gpu::Launch here = reachable(own, device);
    std::vector<std::thread> blocks;
    for (unsigned x = 0; x < grid[0]; ++x) {
      for (unsigned y = 0; y < grid[1]; ++y) {
        blocks.emplace_back([&here, function, threads, x, y] {
          reinterpret_cast<whorl::test::HostInterpreter>(function)(here, x, y, threads);
        });
      }
    }
    for (std::thread& one : blocks) one.join();
  });
  return CUDA_SUCCESS;
}

} // namespace

#pragma GCC visibility push(default)
extern "C" {

// Loads a module: any image will do, and its functions are those of the host, unless the tests want
// the PTX of the image to be run (ptx_kernels.h).
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  const fake_cuda::DriverLock inside;
  if (fake_cuda::lost()) return fake_cuda::kFault;
  if (fake_cuda::unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (fake_cuda::current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (fake_cuda::modules_are_refused()) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  fake_cuda::synchronize_implicitly();
  *module = reinterpret_cast<CUmodule>(const_cast<void*>(image));
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const fake_cuda::DriverLock inside;
  const auto find_in_image = [&] {
    fake_cuda::add_function(*function);
    return fake_cuda::add_ptx_kernel(*function, module, name) ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  };
  const auto& kernels = whorl::test::host_kernels();
  if (const auto found = kernels.find(std::string_view(name)); found != kernels.end()) {
    *function = reinterpret_cast<CUfunction>(found->second);
    return find_in_image();
  }
  const auto& interpreters = whorl::test::host_interpreters();
  if (const auto found = interpreters.find(std::string_view(name)); found != interpreters.end()) {
    *function = reinterpret_cast<CUfunction>(found->second);
    return find_in_image();
  }
  const fake_cuda::LaunchOf launch = fake_cuda::find_perf_kernel(name);
  if (launch == nullptr) return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<CUfunction>(launch);
  const std::lock_guard lock(perf_kernels().mutex);
  perf_kernels().all.insert(*function);
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction function) {
  const fake_cuda::DriverLock inside;
  fake_cuda::load_function(function);
  *value = 64;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads,
                        unsigned threads_y, unsigned threads_z, unsigned, CUstream stream,
                        void** parameters, void**) {
  const fake_cuda::DriverLock inside(stream);
  if (is_perf_kernel(function)) {
    stream_of(stream).push(reinterpret_cast<fake_cuda::LaunchOf>(function)(parameters, x));
    return CUDA_SUCCESS;
  }
  if (const CUresult bad = fake_cuda::refused_in_capture(stream); bad != CUDA_SUCCESS) return bad;
  if (!fake_cuda::has_function(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (fake_cuda::load_function(function)) fake_cuda::synchronize_implicitly();
  if (is_interpreter(function)) {
    return interpret(function, {x, y, z}, {threads, threads_y, threads_z}, stream, parameters);
  }
  auto work = *static_cast<whorl::gpu::Work*>(parameters[0]);
  const auto segments = static_cast<unsigned>(work.n_segments);
  if ((y == 1 ? x < segments : y != segments) || z != 1 || threads_y != 1 || threads_z != 1 ||
      x == 0 || threads == 0 || threads > whorl::gpu::kThreads) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  fake_cuda::count_launch();
  stream_of(stream).push([=, device = stream_of(stream).device()]() mutable {
    if (fake_cuda::run_as_ptx(function, {x, y, threads}, &work, sizeof work, device)) return;
    for (const std::byte*& source : work.sources) source = Memory::all().reach(source);
    for (std::byte*& destination : work.destinations) {
      destination = Memory::all().reach(destination);
    }
    reinterpret_cast<whorl::test::HostKernel>(function)(work, {x, y, threads});
  });
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int,
                                                     std::size_t) {
  const fake_cuda::DriverLock inside;
  fake_cuda::load_function(function);
  *blocks = kBlocksOfProcessor;
  return CUDA_SUCCESS;
}
void fake_cuda_hold_launches(int device) { held_device = device; }
long fake_cuda_cooperative_launches() { return cooperative_launches; }
long fake_cuda_interpreter_launches() { return interpreter_launches; }
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned x, unsigned y, unsigned z,
                                   unsigned threads, unsigned threads_y, unsigned threads_z,
                                   unsigned, CUstream handle, void** parameters) {
  const fake_cuda::DriverLock inside(handle);
  if (is_perf_kernel(function)) {
    return cuLaunchKernel(function, x, y, z, threads, threads_y, threads_z, 0, handle, parameters,
                          nullptr);
  }
  if (const CUresult bad = fake_cuda::refused_in_capture(handle); bad != CUDA_SUCCESS) return bad;
  if (!fake_cuda::has_function(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (fake_cuda::load_function(function)) fake_cuda::synchronize_implicitly();
  int processors = 0;
  cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                       stream_of(handle).device());
  // FAKE_CUDA_ROOM imitates MPS, under which a process may have a part of the device that no
  // attribute shows.
  const char* const room = std::getenv("FAKE_CUDA_ROOM");
  const int blocks = room != nullptr ? std::atoi(room) : processors * kBlocksOfProcessor;
  if (x * y > static_cast<unsigned>(blocks)) {
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  ++cooperative_launches;
  return interpret(function, {x, y, z}, {threads, threads_y, threads_z}, handle, parameters);
}

} // extern "C"
