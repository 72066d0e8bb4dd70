#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kernels/reduce.h"

namespace whorl {
namespace {

/// Checks one value of WHORL_SIMD in each process, see meson.build: a process makes the choice
/// once.
TEST(Simd, IsTheOneThatTheEnvironmentNames) {
  const char* const value = std::getenv("WHORL_SIMD");
  const std::string wanted = value != nullptr ? value : "";
  Simd best = Simd::kScalar;
  if (supported(Simd::kNeon)) best = Simd::kNeon;
  if (supported(Simd::kAvx2)) best = Simd::kAvx2;
  if (supported(Simd::kAvx512)) best = Simd::kAvx512;
  Simd expected = best;
  for (const Simd simd : {Simd::kScalar, Simd::kAvx2, Simd::kAvx512, Simd::kNeon}) {
    if (name_of(simd) == wanted && supported(simd)) expected = simd;
  }
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(default_simd(), expected);
  const std::string message = ::testing::internal::GetCapturedStderr();
  if (wanted.empty() || name_of(expected) == wanted) {
    EXPECT_EQ(message, "");
  } else {
    EXPECT_NE(message.find("WHORL_SIMD=\"" + wanted + "\""), std::string::npos) << message;
    EXPECT_NE(message.find(name_of(best)), std::string::npos) << message;
  }
  EXPECT_EQ(default_simd(), expected) << "decided once";
}

TEST(Simd, ScalarIsAlwaysThere) { EXPECT_TRUE(supported(Simd::kScalar)); }

TEST(Simd, UnsupportedOnesFallBackToScalar) {
  const bool has_avx2 = supported(Simd::kAvx2);
  const Simd absent = has_avx2 ? Simd::kNeon : Simd::kAvx2;
  ASSERT_FALSE(supported(absent));
  EXPECT_EQ(reduce_kernel(DataType::kFloat32, ReduceOp::kSum, absent),
            reduce_kernel(DataType::kFloat32, ReduceOp::kSum, Simd::kScalar));
  EXPECT_EQ(scale_kernel(DataType::kFloat32, absent),
            scale_kernel(DataType::kFloat32, Simd::kScalar));
}

TEST(Simd, EveryOneHasKernelsOfItsOwn) {
  for (const Simd simd : {Simd::kAvx2, Simd::kAvx512, Simd::kNeon}) {
    if (!supported(simd)) continue;
    for (int type = 0; type < kNumDataTypes; ++type) {
      for (const ReduceOp o : kReduceOps) {
        const auto t = static_cast<DataType>(type);
        if (!combines(t, o)) {
          EXPECT_EQ(reduce_kernel(t, o, simd), nullptr);
          continue;
        }
        EXPECT_NE(reduce_kernel(t, o, simd), reduce_kernel(t, o, Simd::kScalar))
            << name_of(simd) << " " << name_of(t) << " " << name_of(o);
      }
    }
  }
}

} // namespace
} // namespace whorl
