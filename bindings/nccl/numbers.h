#pragma once

#include <optional>

#include "bindings/nccl/abi.h"
#include "whorl/whorl.h"

// Translation of the numbers of datatypes and operators. whorl has some that NCCL lacks, so each
// number of NCCL is translated or range-checked, and a number that NCCL does not define never
// yields one of whorl's own. Operators that a program makes keep their number, with kFactorOnDevice
// where that applies.
//
//   operators   0 … 4      5 … WHORL_FIRST_USER_OP-1    WHORL_FIRST_USER_OP …
//               built in   none                         made by ncclRedOpCreatePreMulSum()
namespace whorl_nccl {

static_assert(static_cast<int>(ncclInt8) == whorlInt8 && static_cast<int>(ncclUint8) == whorlUint8);
static_assert(static_cast<int>(ncclInt32) == whorlInt32);
static_assert(static_cast<int>(ncclUint32) == whorlUint32);
static_assert(static_cast<int>(ncclInt64) == whorlInt64);
static_assert(static_cast<int>(ncclUint64) == whorlUint64);
static_assert(static_cast<int>(ncclFloat16) == whorlFloat16);
static_assert(static_cast<int>(ncclFloat32) == whorlFloat32);
static_assert(static_cast<int>(ncclFloat64) == whorlFloat64);
static_assert(static_cast<int>(ncclBfloat16) == whorlBfloat16);
static_assert(static_cast<int>(ncclFloat8e4m3) == whorlFloat8e4m3);
static_assert(static_cast<int>(ncclFloat8e5m2) == whorlFloat8e5m2);
static_assert(static_cast<int>(WHORL_FIRST_USER_OP) >= ncclNumOps);
// A program counts NCCL's types by the ncclNumTypes of its own header, which this library never
// changes: whorlNumTypes counts whorl's types, too, and no function takes or returns either.
static_assert(static_cast<int>(whorlNumTypes) >= ncclNumTypes);

/// Returns whorl's datatype, or nullopt if NCCL has no type with this number.
inline std::optional<whorlDataType_t> inner_type(ncclDataType_t type) noexcept {
  const int number = type;
  if (number < 0 || number >= ncclNumTypes) return std::nullopt;
  return static_cast<whorlDataType_t>(number);
}

/// Bit in the numbers of operators whose factor is in device memory.
inline constexpr int kFactorOnDevice = 1 << 30;

/// Returns whether the factor of an operator that inner_operator() accepts is in device memory.
inline bool has_factor_on_device(ncclRedOp_t op) noexcept {
  return static_cast<int>(op) > kFactorOnDevice;
}

/// Returns whorl's operator, or nullopt if the number cannot be one of NCCL's.
inline std::optional<whorlRedOp_t> inner_operator(ncclRedOp_t op) noexcept {
  switch (static_cast<int>(op)) {
    case ncclSum:
      return whorlSum;
    case ncclProd:
      return whorlProd;
    case ncclMax:
      return whorlMax;
    case ncclMin:
      return whorlMin;
    case ncclAvg:
      return whorlAvg;
    default:
      break;
  }
  const int made = static_cast<int>(op) & ~kFactorOnDevice;
  if (static_cast<int>(op) < 0 || made < WHORL_FIRST_USER_OP || op == ncclMaxRedOp) {
    return std::nullopt;
  }
  return static_cast<whorlRedOp_t>(made);
}

} // namespace whorl_nccl
