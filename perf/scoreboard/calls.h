#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "perf/common/api.h"

namespace perf {

/// One collective call, as a rank makes it.
struct Call {
  bool broadcast = false; ///< an allreduce otherwise
  std::size_t count = 0;
  DataType type = XCCL(Float32); ///< a type of four bytes
  RedOp op = XCCL(Sum);
  int root = 0;
};

/// State of an output buffer after a call, compared with the result that the call would have if all
/// ranks had made it in the same way.
enum class Output : std::uint8_t {
  kRight,
  kUntouched,
  kWrong,   ///< some elements differ
  kOverrun, ///< something was written behind the last element
};
std::string name_of(Output output);

/// Buffers of a rank, with numbers whose sums are exact.
class Buffers {
 public:
  Buffers(int rank, int nranks, std::size_t count);
  /// Makes the call on fresh buffers.
  Result make(const Call& call, Comm comm);
  /// Makes the call on the inputs of the last one, with `extra` added to this rank's first float.
  Result make(const Call& call, Comm comm, float extra);
  /// Returns the state of the output of `call`, the last one that was made.
  [[nodiscard]] Output output(const Call& call) const;
  /// Returns the first element of the output.
  [[nodiscard]] float first() const;
  /// Whether all elements but the first are those of `call`, the last one that was made.
  [[nodiscard]] bool rest_is_right(const Call& call) const;

 private:
  [[nodiscard]] std::uint32_t expected(const Call& call, std::size_t i) const;
  Result issue(const Call& call, Comm comm);

  int rank_, nranks_;
  std::vector<std::uint32_t> in_, out_;
};

} // namespace perf
