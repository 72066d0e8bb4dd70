#include "perf/gpu/device.h"

#include <dlfcn.h>

#include <algorithm>

#include "perf/gpu/kernels.h"

extern "C" const char whorl_fatbin_perf_kernels[]; // made by src/gpu/embed.py

namespace perf::gpu {
namespace {

Driver load() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    throw Failure(std::string("there is no CUDA driver: ") + dlerror());
  }
  Driver functions;
#define PERF_CUDA_TEXT_(name) #name
#define PERF_CUDA_TEXT(name) PERF_CUDA_TEXT_(name)
#define PERF_CUDA_FIND(name)                                                            \
  functions.name =                                                                      \
      reinterpret_cast<decltype(functions.name)>(dlsym(library, PERF_CUDA_TEXT(name))); \
  if (functions.name == nullptr) {                                                      \
    throw Failure("the CUDA driver has no " PERF_CUDA_TEXT(name));                      \
  }
  PERF_CUDA_FUNCTIONS(PERF_CUDA_FIND)
#undef PERF_CUDA_FIND
#undef PERF_CUDA_TEXT
#undef PERF_CUDA_TEXT_
  return functions;
}

/// Returns the masks that turn random bits into numbers of a type whose magnitude lies in [1, 2):
/// no infinities, and sums that stay finite.
Fill pattern_of(int type) {
  switch (type) {
    case XCCL(Float32):
      return {{}, 0, {0x807fffff, 0x807fffff}, {0x3f800000, 0x3f800000}};
    case XCCL(Float64):
      return {{}, 0, {0xffffffff, 0x800fffff}, {0, 0x3ff00000}};
    case XCCL(Bfloat16):
      return {{}, 0, {0x807f807f, 0x807f807f}, {0x3f803f80, 0x3f803f80}};
    case XCCL(Float16):
      return {{}, 0, {0x83ff83ff, 0x83ff83ff}, {0x3c003c00, 0x3c003c00}};
    case XCCL(Float8e4m3):
      return {{}, 0, {0x87878787, 0x87878787}, {0x38383838, 0x38383838}};
    case XCCL(Float8e5m2):
      return {{}, 0, {0x83838383, 0x83838383}, {0x3c3c3c3c, 0x3c3c3c3c}};
    default:
      return {{}, 0, {0xffffffff, 0xffffffff}, {0, 0}};
  }
}

} // namespace

const Driver& driver() {
  static const Driver functions = load();
  return functions;
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  if (driver().cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "?";
  throw Failure(std::string(what) + " failed: " + name);
}

Device::Device() {
  PERF_CUDA(cuInit(0));
  CUdevice device = 0;
  CUcontext context = nullptr;
  PERF_CUDA(cuDeviceGet(&device, 0));
  PERF_CUDA(cuDevicePrimaryCtxRetain(&context, device));
  PERF_CUDA(cuCtxSetCurrent(context));
  char name[256] = {};
  PERF_CUDA(cuDeviceGetName(name, sizeof name - 1, device));
  name_ = name;
  PERF_CUDA(cuDriverGetVersion(&driver_version_));
  int cache = 0;
  PERF_CUDA(cuDeviceGetAttribute(&processors_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  PERF_CUDA(cuDeviceGetAttribute(&cache, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device));
  cache_bytes_ = static_cast<std::size_t>(cache);
  int khz = 0;
  int bits = 0;
  PERF_CUDA(cuDeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device));
  PERF_CUDA(cuDeviceGetAttribute(&bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device));
  peak_ = 2e3 * khz * bits / 8;
  CUmodule module = nullptr;
  PERF_CUDA(cuModuleLoadData(&module, whorl_fatbin_perf_kernels));
  PERF_CUDA(cuModuleGetFunction(&empty_, module, "perf_empty"));
  PERF_CUDA(cuModuleGetFunction(&triad_, module, "perf_triad"));
  PERF_CUDA(cuModuleGetFunction(&fill_, module, "perf_fill"));
  PERF_CUDA(cuModuleGetFunction(&ring_, module, "perf_ring"));
  PERF_CUDA(cuModuleGetFunction(&costs_, module, "perf_costs"));
  PERF_CUDA(cuDeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device));
  cycles_per_us_ = std::max(khz, 1) / 1e3;
  int resident = 0;
  PERF_CUDA(cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, ring_, kThreads, 0));
  ring_blocks_ = std::min(std::max(resident, 1) * processors_, static_cast<int>(kMaxRingBlocks));
}

std::size_t Device::free_bytes() const {
  std::size_t free = 0;
  std::size_t total = 0;
  PERF_CUDA(cuMemGetInfo(&free, &total));
  return free;
}

void Device::launch(CUfunction function, unsigned blocks, void* parameter, CUstream stream) const {
  void* parameters[] = {parameter};
  PERF_CUDA(cuLaunchKernel(function, blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters, nullptr));
}

void Device::empty(CUstream stream) const {
  PERF_CUDA(cuLaunchKernel(empty_, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr));
}

void Device::empty_together(CUstream stream, bool cooperative) const {
  const auto blocks = static_cast<unsigned>(ring_blocks_);
  if (cooperative) {
    PERF_CUDA(cuLaunchCooperativeKernel(empty_, blocks, 1, 1, kThreads, 1, 1, 0, stream, nullptr));
  } else {
    PERF_CUDA(cuLaunchKernel(empty_, blocks, 1, 1, kThreads, 1, 1, 0, stream, nullptr, nullptr));
  }
}

void Device::costs(const Costs& costs, CUstream stream) const {
  Costs work = costs;
  void* parameters[] = {&work};
  const unsigned threads = costs.act == Costs::kBarrier ? kThreads : 1;
  PERF_CUDA(cuLaunchKernel(costs_, static_cast<unsigned>(costs.blocks), 1, 1, threads, 1, 1, 0,
                           stream, parameters, nullptr));
}

void Device::triad(CUdeviceptr base, std::size_t bytes, CUstream stream) const {
  const std::uint64_t vectors = bytes / 3 / sizeof(Floats);
  if (vectors == 0) return empty(stream);
  auto* const first = reinterpret_cast<Floats*>(base);
  Triad work{first + 2 * vectors, first, first + vectors, vectors};
  constexpr std::uint64_t kOfBlock = std::uint64_t{kThreads} * 4;
  const auto useful = static_cast<unsigned>((vectors + kOfBlock - 1) / kOfBlock);
  launch(triad_, std::min(useful, 2U * static_cast<unsigned>(processors_)), &work, stream);
}

void Device::copy(CUdeviceptr base, std::size_t bytes, CUstream stream) const {
  PERF_CUDA(cuMemcpyAsync(base + bytes / 2, base, bytes / 2, stream));
}

void Device::fill(CUdeviceptr base, std::size_t bytes, int type, CUstream stream) const {
  Fill work = pattern_of(type);
  work.words = reinterpret_cast<std::uint32_t*>(base);
  work.count = bytes / sizeof(std::uint32_t);
  launch(fill_, 2U * static_cast<unsigned>(processors_), &work, stream);
}

void Device::ring(const Ring& ring, CUstream stream) const {
  RingWork work{};
  std::copy_n(reinterpret_cast<const Floats* const*>(ring.send.data()), ring.send.size(),
              work.send);
  std::copy_n(reinterpret_cast<Floats* const*>(ring.recv.data()), ring.recv.size(), work.recv);
  work.flags = reinterpret_cast<std::uint32_t*>(ring.flags);
  work.vectors = ring.bytes / sizeof(Floats);
  work.ranks = static_cast<int>(ring.send.size());
  const auto ranks = static_cast<std::uint64_t>(work.ranks);
  const std::uint64_t useful = work.vectors / ranks / kThreads;
  const std::uint64_t most = static_cast<std::uint64_t>(ring_blocks_) / ranks;
  work.channels =
      static_cast<int>(std::clamp<std::uint64_t>(useful, 1, std::max<std::uint64_t>(most, 1)));
  void* parameters[] = {&work};
  PERF_CUDA(cuLaunchCooperativeKernel(ring_, static_cast<unsigned>(work.ranks * work.channels), 1,
                                      1, kThreads, 1, 1, 0, stream, parameters));
}

} // namespace perf::gpu
