#pragma once

#include <cuda.h>

#include <array>
#include <mutex>

#include "base/status.h"
#include "base/types.h"
#include "gpu/work.h"

namespace whorl::gpu {

/// Kernels of combine.cu in one context. Any thread.
class Kernels {
 public:
  /// Returns the kernels of a context, which must be current. Loads them at the first call and
  /// keeps them for the life of the process; does not try again if that fails. Loading may wait for
  /// all streams of the context.
  static Result<Kernels*> of(CUcontext context);

  /// Queues `work` on elements of `type`; aligns its segments first. kAvg is kSum with the work's
  /// divisor.
  Status combine(Work& work, DataType type, ReduceOp op, CUstream stream) const;
  /// Queues a copy of `count` bytes for each segment, all of which have one source. Uses the kernel
  /// of the largest byte, which moves the bytes of one source unchanged.
  Status copy(Work& work, CUstream stream) const;

  /// Loads the kernels, for loaded() of modules.h.
  Status load();

 private:
  Status launch(CUfunction function, Work& work, std::size_t element_size, CUstream stream) const;

  struct Row {
    std::array<std::array<CUfunction, 2>, kNumReduceOps> combine{}; ///< kernels: few, many sources
  };
  std::array<Row, kNumDataTypes> rows_{};
  unsigned max_blocks_ = 1; ///< largest number of blocks of a launch
};

} // namespace whorl::gpu
