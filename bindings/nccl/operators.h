#pragma once

#include "bindings/nccl/abi.h"
#include "whorl/whorl.h"

// Numbers of operators. The built-in ones are translated one by one, because whorl has some that
// NCCL lacks and may number them as it likes. Those that a program makes keep their number with an
// offset, so that no number of whorl's own can be reached by a number that NCCL does not define.
//
//   NCCL   0 … 4     5 … kFirstMade+whorlNumOps-1      kFirstMade + n, n >= whorlNumOps
//          built in  none                              whorl's operator n
namespace whorl_nccl {

inline constexpr int kFirstMade = 0x10000;
inline constexpr int kNoOperator = -1; ///< whorl refuses it

/// The operator of whorl that a program names.
inline whorlRedOp_t inner_operator(ncclRedOp_t op) noexcept {
  const int number = op;
  switch (number) {
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
  const int made = number >= kFirstMade ? number - kFirstMade : kNoOperator;
  return static_cast<whorlRedOp_t>(made >= whorlNumOps ? made : kNoOperator);
}

/// The number of an operator that whorl has made.
inline ncclRedOp_t outer_operator(whorlRedOp_t made) noexcept {
  return static_cast<ncclRedOp_t>(static_cast<int>(made) + kFirstMade);
}

} // namespace whorl_nccl
