#include "perf/common/operators.h"

#include <cstdint>

#include "perf/common/verify.h"

namespace perf {

RedOp make_operator(Operator op, DataType type, Comm comm) {
  switch (op) {
    case Operator::kProd:
      return XCCL(Prod);
    case Operator::kMax:
      return XCCL(Max);
    case Operator::kMin:
      return XCCL(Min);
    case Operator::kAvg:
      return XCCL(Avg);
    case Operator::kMulSum: {
      std::uint64_t scalar = encode(info_of(type), kMulSumScalar);
      RedOp handle{};
      check(XCCL(RedOpCreatePreMulSum)(&handle, &scalar, type, XCCL(ScalarHostImmediate), comm),
            comm, "RedOpCreatePreMulSum");
      return handle;
    }
#ifndef WHORL_PERF_NCCL
    case Operator::kBand:
      return XCCL(Band);
    case Operator::kBor:
      return XCCL(Bor);
    case Operator::kBxor:
      return XCCL(Bxor);
#endif
    default:
      return XCCL(Sum);
  }
}

void destroy_operator(Operator op, RedOp handle, Comm comm) {
  if (op == Operator::kMulSum) (void)XCCL(RedOpDestroy)(handle, comm);
}

} // namespace perf
