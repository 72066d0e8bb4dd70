#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "gpu/driver.h"

namespace whorl::gpu {

/// What a stream does with 32-bit words that others see, one after the other. Whoever sees a word
/// that it has written sees all that came before in the stream.
class StreamWords {
 public:
  static constexpr std::size_t kMost = 255; ///< what the driver takes at once

  void write(CUdeviceptr word, std::uint32_t value) noexcept {
    CUstreamBatchMemOpParams& one = add();
    one.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    one.writeValue.address = word;
    one.writeValue.value = value;
    one.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT; // after all that was written before
  }
  /// Until the word is `value`; with GEQ, `value` or beyond in the order of a circle.
  void wait(CUdeviceptr word, std::uint32_t value, CUstreamWaitValue_flags how) noexcept {
    CUstreamBatchMemOpParams& one = add();
    one.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    one.waitValue.address = word;
    one.waitValue.value = value;
    one.waitValue.flags = how;
  }
  Status queue(CUstream stream) {
    WHORL_CUDA_TRY(cuStreamBatchMemOp(stream, count_, operations_.data(), 0));
    return {};
  }

 private:
  CUstreamBatchMemOpParams& add() noexcept {
    operations_[count_] = {};
    return operations_[count_++];
  }

  std::array<CUstreamBatchMemOpParams, kMost> operations_;
  unsigned count_ = 0;
};

} // namespace whorl::gpu
