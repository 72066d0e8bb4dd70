// Kernels, written once for all instruction sets. Each reduce_<simd>.cc defines WHORL_KERNEL_TABLE,
// the name of its table, and includes this file; its compiler flags make the difference. Only the
// table is visible outside: an inline function with external linkage, compiled here for AVX-512,
// could become the one copy that the linker keeps for the whole program. tests/unit/kernels checks
// that there is no such function.
//
//   up to four sources, no division:
//       sources ──load, combine, store──▶ destination              one loop, nothing in between
//   otherwise, for each block of elements:
//       first four sources ──▶ partial ◀── four more … ──divide, store──▶ destination
//
// A loop loads its element of every source before it stores it, so the destination may be a source;
// all sources of a block are loaded before the block of the destination is written.

#include <utility>

#include "kernels/copy_body.h"
#include "kernels/formats.h"
#include "kernels/kernel_table.h"
#include "kernels/reductions.h"

#if defined(__clang__)
#define WHORL_VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define WHORL_VECTOR_LOOP _Pragma("GCC ivdep")
#endif

namespace whorl::kernels {
namespace {

/// Elements of partial results: at 8 bytes each, 4 KiB, so that they and as much of a few sources
/// stay in a first-level cache of 32 KiB. Smaller costs calls, larger evicts.
constexpr std::size_t kBlock = 512;
/// Number of sources in one loop. More would need more pointers than there are registers.
constexpr std::size_t kFan = 4;

template <class T>
struct [[gnu::packed, gnu::may_alias]] Unaligned {
  T value;
};

template <class Format>
struct Input {
  static constexpr std::size_t kLanes = Format::kLanes;
  const Unaligned<typename Format::Storage>* data;
  WHORL_HOST_DEVICE auto operator[](std::size_t i) const { return Format::load(data[i].value); }
  WHORL_HOST_DEVICE auto load_lanes(std::size_t i) const { return Format::load_lanes(data + i); }
};
template <class Format>
[[gnu::always_inline]] inline Input<Format> input(const void* data, std::size_t offset) {
  return {static_cast<const Unaligned<typename Format::Storage>*>(data) + offset};
}

/// Input multiplied by a power of two.
template <class Format>
struct ScaledInput {
  static constexpr std::size_t kLanes = Format::kLanes;
  Input<Format> input;
  typename Format::Value factor;
  WHORL_HOST_DEVICE auto operator[](std::size_t i) const { return input[i] * factor; }
  WHORL_HOST_DEVICE auto load_lanes(std::size_t i) const { return input.load_lanes(i) * factor; }
};

template <class Format>
struct Output {
  Unaligned<typename Format::Storage>* data;
};
template <class Format>
[[gnu::always_inline]] inline Output<Format> output(void* data, std::size_t offset) {
  return {static_cast<Unaligned<typename Format::Storage>*>(data) + offset};
}

/// Computes out[i] = first[i] ⊕ rest[i] ⊕ …
template <class Op, class Out, class First, class... Rest>
void combine(std::size_t count, Output<Out> out, First first, Rest... rest) {
  std::size_t i = 0;
  if constexpr (Out::kLanes > 0 && First::kLanes > 0 && ((Rest::kLanes > 0) && ...)) {
    for (; i + Out::kLanes <= count; i += Out::kLanes) {
      auto values = first.load_lanes(i);
      ((values = Op::apply(values, rest.load_lanes(i))), ...);
      Out::store_lanes(out.data + i, values);
    }
  }
  WHORL_VECTOR_LOOP
  for (; i < count; ++i) {
    auto value = first[i];
    ((value = Op::apply(value, rest[i])), ...);
    out.data[i].value = Out::store(value);
  }
}

/// Combines `lead` and `n` sources, 1 to kFan: source(0), source(1), …
template <class Op, class Out, class Source, class... Lead>
void combine_sources(std::size_t count, Output<Out> out, std::size_t n, Source source,
                     Lead... lead) {
  switch (n) {
    case 1:
      return combine<Op>(count, out, lead..., source(0));
    case 2:
      return combine<Op>(count, out, lead..., source(0), source(1));
    case 3:
      return combine<Op>(count, out, lead..., source(0), source(1), source(2));
    default:
      return combine<Op>(count, out, lead..., source(0), source(1), source(2), source(3));
  }
}

template <class Format>
void divide(std::size_t count, typename Format::Value* values, Averaging averaging) {
  WHORL_VECTOR_LOOP
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = Format::divide(values[i], averaging.divisor, averaging.scaled);
  }
}

/// Combines `n` sources into partial results, in several loops.
template <class Op, class Value, class Source>
void combine_partial(std::size_t count, Value* values, std::size_t n, Source source) {
  using Partial = Plain<Value>;
  const Output<Partial> to_partial = output<Partial>(values, 0);
  std::size_t done = n < kFan ? n : kFan;
  combine_sources<Op>(count, to_partial, done, source);
  while (done < n) {
    const std::size_t more = n - done < kFan ? n - done : kFan;
    combine_sources<Op>(
        count, to_partial, more, [=](std::size_t k) { return source(done + k); },
        input<Partial>(values, 0));
    done += more;
  }
}

/// Averages one block of sources into `values`; with divisor 1 only sums it.
template <class Format, class Source>
void average(std::size_t count, typename Format::Value* values, std::size_t n, Source source,
             Averaging averaging) {
  if constexpr (Format::kScalesOperands) {
    if (averaging.divisor > 1 && averaging.scaled == 0) {
      averaging.scaled = ceil_log2(averaging.divisor);
      const auto factor = inverse_power<typename Format::Value>(averaging.scaled);
      combine_partial<Sum>(count, values, n, [=](std::size_t k) {
        return ScaledInput<Format>{source(k), factor};
      });
      return divide<Format>(count, values, averaging);
    }
  }
  combine_partial<Sum>(count, values, n, source);
  if (averaging.divisor > 1) divide<Format>(count, values, averaging);
}

/// Reduces one block through partial results.
template <class Format, class Op, bool kMayDivide>
void reduce_block(const void* const* sources, std::size_t n, std::size_t offset, std::size_t count,
                  void* destination, [[maybe_unused]] Averaging averaging) {
  using Value = typename Format::Value;
  alignas(64) Value values[kBlock];
  const auto source = [=](std::size_t k) { return input<Format>(sources[k], offset); };
  if constexpr (kMayDivide) {
    average<Format>(count, values, n, source, averaging);
  } else {
    combine_partial<Op>(count, values, n, source);
  }
  combine<Op>(count, output<Format>(destination, offset), input<Plain<Value>>(values, 0));
}

template <class Format, class Op, bool kMayDivide = false>
void reduce(std::span<const void* const> sources, void* destination, std::size_t count,
            Averaging averaging) noexcept {
  const void* const* const from = sources.data();
  const std::size_t n = sources.size();
  if (n <= kFan && (!kMayDivide || averaging.divisor <= 1)) {
    return combine_sources<Op>(count, output<Format>(destination, 0), n,
                               [=](std::size_t k) { return input<Format>(from[k], 0); });
  }
  for (std::size_t offset = 0; offset < count; offset += kBlock) {
    const std::size_t block = count - offset < kBlock ? count - offset : kBlock;
    reduce_block<Format, Op, kMayDivide>(from, n, offset, block, destination, averaging);
  }
}

template <class Format>
void scale(const void* source, void* destination, std::size_t count, const void* scalar) noexcept {
  const auto factor = input<Format>(scalar, 0)[0];
  const Input<Format> in = input<Format>(source, 0);
  const Output<Format> out = output<Format>(destination, 0);
  std::size_t i = 0;
  if constexpr (Format::kLanes > 0) {
    for (; i + Format::kLanes <= count; i += Format::kLanes) {
      Format::store_lanes(out.data + i, in.load_lanes(i) * factor);
    }
  }
  WHORL_VECTOR_LOOP
  for (; i < count; ++i) {
    out.data[i].value = Format::store(Prod::apply(in[i], factor));
  }
}

/// Returns the unsigned type of the same size where the operator gives the same bits for it, so
/// that both share a kernel.
consteval DataType same_bits(DataType type, ReduceOp op) {
  if (op != ReduceOp::kProd && !is_bitwise(op)) return type;
  switch (type) {
    case DataType::kInt8:
      return DataType::kUint8;
    case DataType::kInt16:
      return DataType::kUint16;
    case DataType::kInt32:
      return DataType::kUint32;
    case DataType::kInt64:
      return DataType::kUint64;
    default:
      return type;
  }
}

/// Returns the kernel of a type and an operator. Sum and average have one kernel: the divisor tells
/// them apart.
template <DataType kType, ReduceOp kOp>
consteval ReduceKernel kernel_of() {
  if constexpr (combines(kType, kOp)) {
    using R = Reduction<same_bits(kType, kOp), kOp>;
    return reduce<typename R::Format, typename R::Function, R::kMayDivide>;
  } else {
    return nullptr;
  }
}

template <DataType kType>
consteval KernelTable::Row row_of() {
  return []<std::size_t... kOps>(std::index_sequence<kOps...>) {
    return KernelTable::Row{{kernel_of<kType, kReduceOps[kOps]>()...},
                            scale<typename Formats<same_bits(kType, ReduceOp::kProd)>::Arithmetic>};
  }
  (std::make_index_sequence<kNumReduceOps>());
}

template <std::size_t... kTypes>
consteval KernelTable table_of(std::index_sequence<kTypes...>) {
  return {{row_of<static_cast<DataType>(kTypes)>()...}, nontemporal_copy, vector_copy};
}

} // namespace

constexpr KernelTable WHORL_KERNEL_TABLE = table_of(std::make_index_sequence<kNumDataTypes>());

} // namespace whorl::kernels
