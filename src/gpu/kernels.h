#pragma once

#include <cuda.h>

#include <array>
#include <mutex>

#include "base/status.h"
#include "base/types.h"
#include "gpu/work.h"

namespace whorl::gpu {

/// The kernels of combine.cu in one context. Any thread.
class Kernels {
 public:
  /// Those of a context, which must be current; loaded at the first call and kept for the life of
  /// the process. Where they cannot be loaded, they are not tried again. Loading may wait for all
  /// streams of the context.
  static Result<Kernels*> of(CUcontext context);

  /// Queues `work` on elements of `type`; its segments are aligned here. kAvg is kSum with the
  /// work's divisor.
  Status combine(Work& work, DataType type, ReduceOp op, CUstream stream) const;
  /// Queues a copy of `count` bytes for each segment, all of which have one source. It is the
  /// kernel of the largest byte, which moves the bytes of one source as they are.
  Status copy(Work& work, CUstream stream) const;

  /// For loaded() of modules.h.
  Status load();

 private:
  Status launch(CUfunction function, const Work& work, std::size_t element_size,
                CUstream stream) const;

  struct Row {
    std::array<std::array<CUfunction, 2>, kNumReduceOps> combine{}; ///< few, many sources
  };
  std::array<Row, kNumDataTypes> rows_{};
  unsigned most_blocks_ = 1; ///< of a launch
};

} // namespace whorl::gpu
