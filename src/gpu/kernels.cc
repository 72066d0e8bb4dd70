#include "gpu/kernels.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpu/driver.h"
#include "gpu/fatbins.h"
#include "gpu/modules.h"

namespace whorl::gpu {
namespace {

#define WHORL_ADDRESS(type) whorl_fatbin_combine_##type,
constexpr std::array<const char*, kNumDataTypes> kFatbins{WHORL_FATBINS(WHORL_ADDRESS)};

/// Number of blocks of a launch on each multiprocessor: as many as fit, see __launch_bounds__ of
/// the kernels.
constexpr unsigned kBlocksOfProcessor = 2;

} // namespace

Result<Kernels*> Kernels::of(CUcontext context) { return loaded<Kernels>(context); }

Status Kernels::load() {
  CUdevice device = 0;
  int processors = 0;
  WHORL_CUDA_TRY(cuCtxGetDevice(&device));
  WHORL_CUDA_TRY(
      cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  max_blocks_ = kBlocksOfProcessor * static_cast<unsigned>(processors);
  for (int t = 0; t < kNumDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    const auto module = load_module(kFatbins[static_cast<std::size_t>(t)],
                                    fmt::format("kernels of {}", name_of(type)));
    if (!module.ok()) return module.status();
    for (const ReduceOp op : kReduceOps) {
      if (op == ReduceOp::kAvg || !combines(type, op)) continue;
      for (const bool many : {false, true}) {
        const std::string name = fmt::format("whorl_combine_{}_{}_{}", name_of(type), name_of(op),
                                             many ? "many" : "few");
        CUfunction& function =
            rows_[static_cast<std::size_t>(t)].combine[index_of(op)][many ? 1 : 0];
        WHORL_CUDA_TRY(cuModuleGetFunction(&function, *module, name.c_str()));
        // Forces a function that is loaded lazily to load now: at its first launch a stream may be
        // capturing, or other work waiting for this launch.
        int registers = 0;
        WHORL_CUDA_TRY(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
      }
    }
  }
  return {};
}

Status Kernels::combine(Work& work, DataType type, ReduceOp op, CUstream stream) const {
  align(work, size_of(type));
  const std::size_t kernel = index_of(op == ReduceOp::kAvg ? ReduceOp::kSum : op);
  const Row& row = rows_[static_cast<std::size_t>(type)];
  return launch(row.combine[kernel][max_sources(work) > 2 ? 1 : 0], work, size_of(type), stream);
}

Status Kernels::copy(Work& work, CUstream stream) const {
  return combine(work, DataType::kUint8, ReduceOp::kMax, stream);
}

Status Kernels::launch(CUfunction function, Work& work, std::size_t element_size,
                       CUstream stream) const {
  if (work.n_segments == 0) return {};
  const Grid grid = divide(work, element_size, max_blocks_);
  void* parameters[] = {&work};
  WHORL_CUDA_TRY(cuLaunchKernel(function, grid.blocks, grid.rows, 1, grid.threads, 1, 1, 0, stream,
                                parameters, nullptr));
  return {};
}

} // namespace whorl::gpu
