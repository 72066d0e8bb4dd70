#pragma once

// Format and function of each operator for each datatype: the one table that the kernels of the
// host and of devices are made from.

#include <cstdint>
#include <type_traits>

#include "base/types.h"
#include "kernels/formats.h"

namespace whorl::kernels {
namespace {

/// Formats of a type: for sum and product, and for the order of min and max.
template <DataType kType>
struct Formats;

template <class T>
struct IntegerFormats {
  using Arithmetic = Wrapping<T>;
  using Ascending = Plain<T>;  ///< format for max
  using Descending = Plain<T>; ///< format for min
};
template <class ArithmeticType, class Float>
struct FloatFormats {
  using Arithmetic = ArithmeticType;
  using Ascending = Ordered<Float, true>;
  using Descending = Ordered<Float, false>;
};
// clang-format off
template <> struct Formats<DataType::kInt8> : IntegerFormats<std::int8_t> {};
template <> struct Formats<DataType::kUint8> : IntegerFormats<std::uint8_t> {};
template <> struct Formats<DataType::kInt16> : IntegerFormats<std::int16_t> {};
template <> struct Formats<DataType::kUint16> : IntegerFormats<std::uint16_t> {};
template <> struct Formats<DataType::kInt32> : IntegerFormats<std::int32_t> {};
template <> struct Formats<DataType::kUint32> : IntegerFormats<std::uint32_t> {};
template <> struct Formats<DataType::kInt64> : IntegerFormats<std::int64_t> {};
template <> struct Formats<DataType::kUint64> : IntegerFormats<std::uint64_t> {};
template <> struct Formats<DataType::kFloat16> : FloatFormats<Widened<Float16>, Float16> {};
template <> struct Formats<DataType::kBfloat16> : FloatFormats<Widened<Bfloat16>, Bfloat16> {};
template <> struct Formats<DataType::kFloat8e4m3> : FloatFormats<Widened<Float8e4m3>, Float8e4m3> {};
template <> struct Formats<DataType::kFloat8e5m2> : FloatFormats<Widened<Float8e5m2>, Float8e5m2> {};
template <> struct Formats<DataType::kFloat32> : FloatFormats<Real<float>, Float32> {};
template <> struct Formats<DataType::kFloat64> : FloatFormats<Real<double>, Float64> {};
template <> struct Formats<DataType::kBool> {
  using Arithmetic = Truth;
  using Ascending = Truth;
  using Descending = Truth;
};
// clang-format on

// clang-format off
template <ReduceOp kOp> struct FunctionOf;
template <> struct FunctionOf<ReduceOp::kSum> { using Type = Sum; };
template <> struct FunctionOf<ReduceOp::kProd> { using Type = Prod; };
template <> struct FunctionOf<ReduceOp::kMax> { using Type = Max; };
template <> struct FunctionOf<ReduceOp::kMin> { using Type = Min; };
template <> struct FunctionOf<ReduceOp::kBand> { using Type = BitAnd; };
template <> struct FunctionOf<ReduceOp::kBor> { using Type = BitOr; };
template <> struct FunctionOf<ReduceOp::kBxor> { using Type = BitXor; };
// clang-format on

/// Returns the operator whose function is applied: an average is a sum until it is divided, and of
/// 0 and 1 the sum and the maximum are "or", the product and the minimum are "and".
constexpr ReduceOp applied(DataType type, ReduceOp op) {
  if (op == ReduceOp::kAvg) op = ReduceOp::kSum;
  if (type != DataType::kBool) return op;
  if (op == ReduceOp::kSum || op == ReduceOp::kMax) return ReduceOp::kBor;
  if (op == ReduceOp::kProd || op == ReduceOp::kMin) return ReduceOp::kBand;
  return op;
}

/// Format and function of a reduction, for pairs with combines(kType, kOp). Sum and average are one
/// reduction: the divisor tells them apart.
template <DataType kType, ReduceOp kOp>
struct Reduction {
  static constexpr ReduceOp kApplied = applied(kType, kOp);
  static constexpr bool kMayDivide = kApplied == ReduceOp::kSum;

  using Function = typename FunctionOf<kApplied>::Type;
  using Format = std::conditional_t<
      kApplied == ReduceOp::kMin, typename Formats<kType>::Descending,
      std::conditional_t<kApplied == ReduceOp::kMax || is_bitwise(kApplied),
                         typename Formats<kType>::Ascending, typename Formats<kType>::Arithmetic>>;
};

} // namespace
} // namespace whorl::kernels
