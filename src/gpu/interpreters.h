#pragma once

#include <cuda.h>

#include <array>

#include "base/status.h"
#include "base/types.h"
#include "gpu/program.h"

namespace whorl::gpu {

/// Kernels of interpret.cu and exchange.cu in one context. Any thread.
class Interpreters {
 public:
  /// Returns the kernels of a context, which must be current. Loads them at the first call and
  /// keeps them for the life of the process.
  static Result<const Interpreters*> of(CUcontext context);

  /// Returns the number of blocks that any kernel of interpret.cu can have on the device at once; 0
  /// where the device has no cooperative launches.
  unsigned max_blocks() const noexcept { return max_blocks_; }
  /// Returns the same number for exchanges.
  unsigned max_exchange_blocks() const noexcept { return max_exchange_blocks_; }
  /// Ways in which blocks of a launch begin. kTogether: all run at once, or the driver refuses the
  /// launch.
  enum class Blocks { kAsRoomIs, kTogether };
  /// Queues an operation. Returns false if kTogether is asked and there is no room. The launch
  /// counts elements of `type` if it `reduces`, bytes otherwise. kAvg is kSum with the launch's
  /// divisor.
  Result<bool> launch(const Launch& launch, bool reduces, DataType type, ReduceOp op, Blocks blocks,
                      CUstream stream) const;

  /// Loads the kernels, for loaded() of modules.h.
  Status load();

 private:
  static Status add(CUmodule module, const char* name, CUfunction& function, int processors,
                    unsigned& max_blocks);

  CUfunction copy_ = nullptr, exchange_ = nullptr;
  std::array<std::array<CUfunction, kNumReduceOps>, kNumDataTypes> reduce_{};
  unsigned max_blocks_ = 0, max_exchange_blocks_ = 0;
};

} // namespace whorl::gpu
