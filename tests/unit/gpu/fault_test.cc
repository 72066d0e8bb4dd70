// Tests which results of the driver mean that a context is unusable.
#include "gpu/fault.h"

#include <gtest/gtest.h>

namespace whorl::gpu {
namespace {

TEST(Faults, AreWhatCallsForAnotherProcess) {
  // Errors for which cuda.h says: "the process must be terminated and relaunched".
  for (const int result : {226, 700, 702, 714, 715, 716, 717, 718, 719, 721, 810, 911}) {
    EXPECT_TRUE(is_fault(static_cast<CUresult>(result))) << result;
  }
  for (const CUresult result :
       {CUDA_SUCCESS, CUDA_ERROR_NOT_READY, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY,
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE}) {
    EXPECT_FALSE(is_fault(result)) << static_cast<int>(result);
  }
}

} // namespace
} // namespace whorl::gpu
