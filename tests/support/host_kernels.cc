#include "tests/support/host_kernels.h"

#include <utility>

#include "base/types.h"
#include "gpu/combine.h"
#include "kernels/reductions.h"

namespace whorl::testing {
namespace {

using Table = std::map<std::string, HostKernel, std::less<>>;

bool is_cancelled(const gpu::Work& work) {
  return work.cancelled != nullptr && work.cancelled->is_set();
}

template <class R, bool kFew>
void run(const gpu::Work& work, unsigned blocks, unsigned threads) {
  if (is_cancelled(work)) return;
  const std::uint64_t count = std::uint64_t{blocks} * threads;
  for (int s = 0; s < work.n_segments; ++s) {
    const gpu::SegmentOperands operands(work, work.segments[s]);
    const gpu::Combine<typename R::Format, typename R::Function, R::kMayDivide, kFew> body(
        operands);
    for (std::uint64_t index = 0; index < count; ++index) body.run({index, count});
  }
}

template <DataType kType, ReduceOp kOp>
void add(Table& table) {
  if constexpr (combines(kType, kOp) && kOp != ReduceOp::kAvg) {
    using R = kernels::Reduction<kType, kOp>;
    const std::string name =
        "whorl_combine_" + std::string(name_of(kType)) + "_" + std::string(name_of(kOp));
    table[name + "_few"] = run<R, true>;
    table[name + "_many"] = run<R, false>;
  }
}

template <std::size_t kType, std::size_t... kOps>
void add_type(Table& table, std::index_sequence<kOps...>) {
  (add<static_cast<DataType>(kType), kReduceOps[kOps]>(table), ...);
}

template <std::size_t... kTypes>
Table all(std::index_sequence<kTypes...>) {
  Table table;
  (add_type<kTypes>(table, std::make_index_sequence<kNumReduceOps>()), ...);
  return table;
}

} // namespace

const Table& host_kernels() {
  static const Table table = all(std::make_index_sequence<kNumDataTypes>());
  return table;
}

} // namespace whorl::testing
