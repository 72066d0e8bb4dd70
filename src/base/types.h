#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace whorl {

/// Element types; the values are those of `whorlDataType_t`.
enum class DataType : std::uint8_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8e4m3 = 10,
  kFloat8e5m2 = 11,
  kInt16 = 12,
  kUint16 = 13,
  kBool = 14, ///< byte that is 0 (false) or not (true)
};
inline constexpr int kNumDataTypes = 15;

/// Reduction operators; the values are those of `whorlRedOp_t`. A premultiplied sum is kSum over
/// inputs that the executor has scaled.
enum class ReduceOp : std::uint8_t {
  kSum = 0,
  kProd = 1,
  kMax = 2,
  kMin = 3,
  kAvg = 4,
  kBand = 8,
  kBor = 9,
  kBxor = 10,
};
inline constexpr std::array<ReduceOp, 8> kReduceOps{
    ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin,
    ReduceOp::kAvg, ReduceOp::kBand, ReduceOp::kBor, ReduceOp::kBxor};
inline constexpr int kNumReduceOps = static_cast<int>(kReduceOps.size());

constexpr bool is_reduce_op(int value) noexcept {
  return (value >= 0 && value <= 4) || (value >= 8 && value <= 10);
}
/// Returns the place of an operator in kReduceOps.
constexpr std::size_t index_of(ReduceOp op) noexcept {
  const auto value = static_cast<std::size_t>(op);
  return value < 8 ? value : value - 3;
}
constexpr bool is_bitwise(ReduceOp op) noexcept { return op >= ReduceOp::kBand; }
constexpr bool is_float(DataType type) noexcept {
  return type >= DataType::kFloat16 && type <= DataType::kFloat8e5m2;
}
/// Returns whether the operator can combine elements of the type: all pairs but bitwise operators
/// on floating types and averages of truth values.
constexpr bool combines(DataType type, ReduceOp op) noexcept {
  return !(is_bitwise(op) && is_float(type)) && !(op == ReduceOp::kAvg && type == DataType::kBool);
}

/// Kinds of operations. kSend and kRecv are the two halves of a point-to-point transfer.
enum class Collective : std::uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kBarrier,
  kSend,
  kRecv,
};
inline constexpr int kNumCollectives = 11;

constexpr std::size_t size_of(DataType type) noexcept {
  constexpr std::array<std::uint8_t, kNumDataTypes> kSizes{1, 1, 4, 4, 8, 8, 2, 4,
                                                           8, 2, 1, 1, 2, 2, 1};
  return kSizes[static_cast<std::size_t>(type)];
}

constexpr std::string_view name_of(DataType type) noexcept {
  constexpr std::array<std::string_view, kNumDataTypes> kNames{
      "int8",    "uint8",    "int32",      "uint32",     "int64", "uint64", "float16", "float32",
      "float64", "bfloat16", "float8e4m3", "float8e5m2", "int16", "uint16", "bool"};
  return kNames[static_cast<std::size_t>(type)];
}

constexpr std::string_view name_of(ReduceOp op) noexcept {
  constexpr std::array<std::string_view, kNumReduceOps> kNames{"sum", "prod", "max", "min",
                                                               "avg", "band", "bor", "bxor"};
  return kNames[index_of(op)];
}

constexpr std::string_view name_of(Collective collective) noexcept {
  constexpr std::array<std::string_view, kNumCollectives> kNames{
      "allreduce", "reduce",  "broadcast", "allgather", "reducescatter", "alltoall",
      "gather",    "scatter", "barrier",   "send",      "recv"};
  return kNames[static_cast<std::size_t>(collective)];
}

/// Returns whether the collective combines elements, so that datatype and operator matter.
constexpr bool reduces(Collective collective) noexcept {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

/// Returns whether input and output may be the same memory, in a form that the C API states.
constexpr bool has_in_place_form(Collective collective) noexcept {
  return collective != Collective::kAllToAll && collective != Collective::kSend &&
         collective != Collective::kRecv;
}

/// Returns whether one rank is the root of the collective.
constexpr bool has_root(Collective collective) noexcept {
  return collective == Collective::kReduce || collective == Collective::kBroadcast ||
         collective == Collective::kGather || collective == Collective::kScatter;
}

} // namespace whorl
