#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "gpu/driver.h"

namespace whorl::gpu {

/// Operations of a stream on 32-bit words that other processes or devices see, in order. A reader
/// that sees a word written by the stream sees all writes before it in the stream.
class StreamWords {
 public:
  static constexpr std::size_t kMaxOperations = 255; ///< limit of the driver

  void write(CUdeviceptr word, std::uint32_t value) noexcept {
    CUstreamBatchMemOpParams& one = add();
    one.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    one.writeValue.address = word;
    one.writeValue.value = value;
    one.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT; // after all earlier writes
  }
  /// Waits until the word is `value`; with GEQ, `value` or beyond in cyclic order.
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

  std::array<CUstreamBatchMemOpParams, kMaxOperations> operations_;
  unsigned count_ = 0;
};

} // namespace whorl::gpu
