#pragma once

#include <cuda.h>

#include <array>

#include "base/status.h"
#include "base/types.h"
#include "gpu/program.h"

namespace whorl::gpu {

/// The kernels of interpret.cu in one context. Any thread.
class Interpreters {
 public:
  /// Those of a context, which must be current; loaded at the first call and kept for the life of
  /// the process.
  static Result<const Interpreters*> of(CUcontext context);

  /// Blocks that any of them can have on the device at once; 0 where the device has no cooperative
  /// launches.
  unsigned most_blocks() const noexcept { return most_blocks_; }
  /// How blocks of a launch begin. kTogether: all run at once, or the driver refuses the launch.
  enum class Blocks { kAsRoomIs, kTogether };
  /// Queues an operation. False: kTogether, and there is no room. The launch counts elements of
  /// `type` if it `reduces`, bytes otherwise. kAvg is kSum with the launch's divisor.
  Result<bool> launch(const Launch& launch, bool reduces, DataType type, ReduceOp op, Blocks blocks,
                      CUstream stream) const;

  /// For loaded() of modules.h.
  Status load();

 private:
  Status add(CUmodule module, const char* name, CUfunction& function, int processors);

  CUfunction copy_ = nullptr;
  std::array<std::array<CUfunction, kNumReduceOps>, kNumDataTypes> reduce_{};
  unsigned most_blocks_ = 0;
};

} // namespace whorl::gpu
