#pragma once

#include "base/types.h"
#include "kernels/reduce.h"

namespace whorl::kernels {

/// Kernels of one instruction set, in the order of DataType and kReduceOps; null where a type
/// cannot be combined.
struct KernelTable {
  struct Row {
    ReduceKernel reduce[kNumReduceOps];
    ScaleKernel scale;
  };
  Row rows[kNumDataTypes];
  CopyKernel nontemporal_copy, vector_copy;
};

// Each table is defined in the file reduce_<name>.cc; a build has those of its processor family.
extern const KernelTable kScalarKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kNeonKernels;

} // namespace whorl::kernels
