#include "gpu/interpreters.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpu/driver.h"
#include "gpu/fatbins.h"
#include "gpu/modules.h"
#include "gpu/work.h"

namespace whorl::gpu {
namespace {

#define WHORL_ADDRESS(type) whorl_fatbin_interpret_##type,
constexpr std::array<const char*, kNumDataTypes> kFatbins{WHORL_FATBINS(WHORL_ADDRESS)};

} // namespace

Result<const Interpreters*> Interpreters::of(CUcontext context) {
  const auto known = loaded<Interpreters>(context);
  if (!known.ok()) return known.status();
  return static_cast<const Interpreters*>(*known);
}

Status Interpreters::load() {
  CUdevice device = 0;
  int processors = 0, cooperative = 0;
  WHORL_CUDA_TRY(cuCtxGetDevice(&device));
  WHORL_CUDA_TRY(
      cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  WHORL_CUDA_TRY(
      cuDeviceGetAttribute(&cooperative, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, device));
  if (cooperative == 0) return {};
  max_blocks_ = max_exchange_blocks_ = UINT32_MAX;
  const auto copies = load_module(whorl_fatbin_interpret_copy, "interpreter of copies");
  if (!copies.ok()) return copies.status();
  WHORL_TRY(add(*copies, "whorl_interpret_copy", copy_, processors, max_blocks_));
  const auto exchange = load_module(whorl_fatbin_exchange, "kernel of exchanges");
  if (!exchange.ok()) return exchange.status();
  WHORL_TRY(add(*exchange, "whorl_exchange", exchange_, processors, max_exchange_blocks_));
  for (int t = 0; t < kNumDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    const auto module = load_module(kFatbins[static_cast<std::size_t>(t)],
                                    fmt::format("interpreters of {}", name_of(type)));
    if (!module.ok()) return module.status();
    for (const ReduceOp op : kReduceOps) {
      if (op == ReduceOp::kAvg || !combines(type, op)) continue;
      const std::string name = fmt::format("whorl_interpret_{}_{}", name_of(type), name_of(op));
      WHORL_TRY(add(*module, name.c_str(), reduce_[static_cast<std::size_t>(t)][index_of(op)],
                    processors, max_blocks_));
    }
  }
  return {};
}

/// Finds a function. The query of how many blocks fit also loads what the first launch would load,
/// when a block of another device may already be waiting.
Status Interpreters::add(CUmodule module, const char* name, CUfunction& function, int processors,
                         unsigned& max_blocks) {
  int blocks = 0;
  WHORL_CUDA_TRY(cuModuleGetFunction(&function, module, name));
  WHORL_CUDA_TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, kThreads, 0));
  max_blocks = std::min(max_blocks, static_cast<unsigned>(blocks * processors));
  return {};
}

Result<bool> Interpreters::launch(const Launch& launch, bool reduces, DataType type, ReduceOp op,
                                  Blocks blocks, CUstream stream) const {
  const std::size_t kernel = index_of(op == ReduceOp::kAvg ? ReduceOp::kSum : op);
  const CUfunction function = launch.form == LaunchForm::kExchange ? exchange_
                              : reduces ? reduce_[static_cast<std::size_t>(type)][kernel]
                                        : copy_;
  void* parameters[] = {const_cast<Launch*>(&launch)};
  const unsigned x = launch.lanes * launch.instances, y = launch.n_ranks;
  if (blocks == Blocks::kAsRoomIs) {
    WHORL_CUDA_TRY(
        cuLaunchKernel(function, x, y, 1, kThreads, 1, 1, 0, stream, parameters, nullptr));
    return true;
  }
  const CUresult result =
      driver()->cuLaunchCooperativeKernel(function, x, y, 1, kThreads, 1, 1, 0, stream, parameters);
  if (result == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE) return false;
  WHORL_TRY(check(result, "cuLaunchCooperativeKernel"));
  return true;
}

} // namespace whorl::gpu
