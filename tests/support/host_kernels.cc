#include "tests/support/host_kernels.h"

#include <utility>

#include "base/types.h"
#include "gpu/combine.h"
#include "kernels/reductions.h"

namespace whorl::test {
namespace {

using Table = std::map<std::string, HostKernel, std::less<>>;

/// Returns whether a block of the launch is to do nothing, as in gpu/combine.cu.
bool is_cancelled(const gpu::Work& work, unsigned block) {
  return work.cancelled != nullptr &&
         __atomic_load_n(work.cancelled->of_block(block), __ATOMIC_SEQ_CST) != 0;
}

template <class R, bool kFew>
void run(const gpu::Work& work, const gpu::Grid& grid) {
  for (unsigned i = 0; i < grid.rows * grid.blocks; ++i) {
    if (is_cancelled(work, i)) continue;
    const gpu::Share share = gpu::share_of(work, grid, i % grid.blocks, i / grid.blocks);
    const gpu::SegmentOperands operands(work, work.segments[share.segment]);
    const gpu::Combine<typename R::Format, typename R::Function, R::kMayDivide, kFew> body(
        operands);
    const std::uint64_t first = std::uint64_t{share.index} * grid.threads;
    for (std::uint64_t t = 0; t < grid.threads; ++t) {
      body.run({first + t, std::uint64_t{share.blocks} * grid.threads});
    }
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

} // namespace whorl::test
