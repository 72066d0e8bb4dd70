// Tests of the sentences about which devices and drivers load the kernels.
#include "gpu/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

namespace whorl::gpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::array kArchs{80, 90};
constexpr Images kImages{.cuda_version = 13020, .archs = kArchs};

TEST(Images, OfAnArchitectureServeLaterOnesOfTheSameMajorNumber) {
  EXPECT_TRUE(kImages.have_code_for(80));
  EXPECT_TRUE(kImages.have_code_for(89));
  EXPECT_TRUE(kImages.have_code_for(90));
  EXPECT_FALSE(kImages.have_code_for(75));
  EXPECT_FALSE(kImages.have_code_for(100));
  constexpr std::array kLater{86};
  EXPECT_FALSE((Images{.cuda_version = 13020, .archs = kLater}.have_code_for(80)));
}

TEST(Images, NeedADriverOfTheirMajorVersion) {
  EXPECT_THAT(what_is_missing(kImages, 12080, 90),
              AllOf(HasSubstr("compiled by CUDA 13.2"), HasSubstr("a driver for CUDA 13 or newer"),
                    HasSubstr("this one is for CUDA 12.8"), HasSubstr("build whorl with CUDA 12")));
}

TEST(Images, WithoutMachineCodeNeedADriverOfTheirVersion) {
  EXPECT_THAT(what_is_missing(kImages, 13000, 121),
              AllOf(HasSubstr("no machine code for this device, of compute capability 12.1"),
                    HasSubstr("a driver for CUDA 13.2 or newer"),
                    HasSubstr("this one is for CUDA 13.0"), HasSubstr("-Dkernel_archs=121")));
}

TEST(Images, AreForNoDeviceBelowTheirLeast) {
  EXPECT_THAT(what_is_missing(kImages, 13000, 75),
              AllOf(HasSubstr("compute capability 8.0 and later, this device has 7.5"),
                    Not(HasSubstr("kernel_archs"))));
}

TEST(Images, AreDescribedWhereTheDriverShouldLoadThem) {
  const auto described = AllOf(HasSubstr("compute capability 8.0, 9.0 and later ones of the same"),
                               HasSubstr("for drivers of CUDA 13 and newer"),
                               HasSubstr("for drivers of CUDA 13.2 and newer"));
  EXPECT_THAT(describe(kImages), described);
  EXPECT_THAT(what_is_missing(kImages, 13000, 86),
              AllOf(described, HasSubstr("has compute capability 8.6 and a driver for CUDA 13.0")));
  EXPECT_THAT(what_is_missing(kImages, 13020, 121), described);
  EXPECT_THAT(what_is_missing(kImages, 14000, 90), described);
  EXPECT_THAT(describe({.cuda_version = 12040, .archs = {}}),
              AllOf(HasSubstr("no machine code"), Not(HasSubstr("compute capability"))));
}

TEST(Images, OfThisBinaryAreKnown) {
  EXPECT_GE(images().cuda_version, 12000);
  for (const int arch : images().archs) EXPECT_TRUE(images().have_code_for(arch)) << arch;
}

} // namespace
} // namespace whorl::gpu
