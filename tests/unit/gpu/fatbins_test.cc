// Tests of the kernels' images that the library contains: that each has the kernels which the host
// looks for, with the parameters that the host passes, and what their machine code must have to be
// fast and to keep the order of messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/types.h"
#include "gpu/fatbins.h"
#include "gpu/program.h"
#include "gpu/work.h"
#include "tests/support/device_image/fatbin.h"
#include "tests/support/device_image/machine_code.h"
#include "tests/support/host_interpreters.h"
#include "tests/support/host_kernels.h"

namespace whorl {
namespace {

using test::DeviceCode;
using test::KernelFacts;
using Names = std::set<std::string>;

constexpr unsigned kArchitecture = 90; ///< one for which a release has machine code
/// Size of the loads that a thread has under way, which combine.h promises.
constexpr int kBytesInFlight = 64;

/// Most bytes of local memory of a thread: some kernels of combine.cu, which have no more registers
/// than leave room for two blocks on a multiprocessor, keep a few addresses and counts there.
constexpr std::size_t kMaxStack = 48;

/// Image, and the kernels that the host expects there.
struct Image {
  std::string name;
  const char* fatbin;
  std::size_t parameter_bytes;
  Names kernels;
};

/// Returns the names of a table that begin with `prefix`.
template <class Table>
Names names_in(const Table& table, const std::string& prefix) {
  Names names;
  for (const auto& entry : table) {
    if (entry.first.compare(0, prefix.size(), prefix) == 0) names.insert(entry.first);
  }
  return names;
}

std::vector<Image> all_images() {
  std::vector<Image> images{{"interpret_copy", whorl_fatbin_interpret_copy, sizeof(gpu::Launch),
                             names_in(test::host_interpreters(), "whorl_interpret_copy")},
                            {"exchange", whorl_fatbin_exchange, sizeof(gpu::Launch),
                             names_in(test::host_interpreters(), "whorl_exchange")}};
#define WHORL_IMAGES(type)                                                                  \
  images.push_back({"combine_" #type, whorl_fatbin_combine_##type, sizeof(gpu::Work),       \
                    names_in(test::host_kernels(), "whorl_combine_" #type "_")});           \
  images.push_back({"interpret_" #type, whorl_fatbin_interpret_##type, sizeof(gpu::Launch), \
                    names_in(test::host_interpreters(), "whorl_interpret_" #type "_")});
  WHORL_FATBINS(WHORL_IMAGES)
#undef WHORL_IMAGES
  return images;
}

/// Returns the kernels of a PTX text with the sizes of their parameters.
std::map<std::string, std::size_t> kernels_of(const std::string& ptx) {
  static const std::regex entry(
      R"(\.entry\s+(\w+)\(\s*\.param\s+\.align\s+8\s+\.b8\s+\w+\[(\d+)\])");
  std::map<std::string, std::size_t> kernels;
  for (std::sregex_iterator match(ptx.begin(), ptx.end(), entry), end; match != end; ++match) {
    kernels[(*match)[1]] = std::stoul((*match)[2]);
  }
  return kernels;
}

int occurrences(const std::string& text, const std::string& word) {
  int count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

/// Returns the text of one kernel.
std::string body_of(const std::string& ptx, const std::string& kernel) {
  const std::size_t begin = ptx.find(".entry " + kernel + "(");
  return ptx.substr(begin, ptx.find(".entry ", begin + 1) - begin);
}

class Images : public ::testing::TestWithParam<Image> {
 protected:
  void SetUp() override {
    if (!test::can_decompress()) GTEST_SKIP() << "liblz4-dev or libzstd-dev is missing";
    codes_ = test::read_fatbin(GetParam().fatbin);
    for (const DeviceCode& code : codes_) {
      if (code.kind == DeviceCode::Kind::kMachineCode && code.architecture == kArchitecture) {
        facts_ = test::read_machine_code(code.bytes);
      }
    }
  }
  std::vector<DeviceCode> codes_;
  std::map<std::string, KernelFacts> facts_;
};

/// Tests of machine code, which a release has.
class MachineCode : public Images {
 protected:
  void SetUp() override {
    Images::SetUp();
    if (IsSkipped() || !facts_.empty()) return;
    if (!WHORL_HAS_SM_90) GTEST_SKIP() << "this build has no machine code for sm_90";
    FAIL() << "no code for sm_" << kArchitecture;
  }
};

TEST_P(Images, HaveTheKernelsThatTheHostLooksFor) {
  ASSERT_FALSE(GetParam().kernels.empty());
  std::set<unsigned> ptx;
  for (const DeviceCode& code : codes_) {
    SCOPED_TRACE("architecture " + std::to_string(code.architecture));
    std::map<std::string, std::size_t> kernels;
    if (code.kind == DeviceCode::Kind::kPtx) {
      kernels = kernels_of(code.bytes);
      ptx.insert(code.architecture);
    } else {
      for (const auto& [name, facts] : test::read_machine_code(code.bytes)) {
        kernels[name] = facts.parameter_bytes;
      }
    }
    for (const std::string& name : GetParam().kernels) {
      EXPECT_EQ(kernels.count(name), 1U) << name << " is missing";
    }
    for (const auto& [name, bytes] : kernels) {
      EXPECT_EQ(GetParam().kernels.count(name), 1U) << name << " is never used";
      EXPECT_EQ(bytes, GetParam().parameter_bytes) << name;
    }
  }
  ASSERT_FALSE(ptx.empty());
  EXPECT_LE(*ptx.begin(), 80U) << "the oldest devices have no code";
}

TEST_P(MachineCode, KeepTheirVariablesInRegisters) {
  for (const auto& [name, facts] : facts_) {
    const bool interprets = name.find("interpret") != std::string::npos;
    EXPECT_LE(facts.stack_bytes, interprets ? 0 : kMaxStack) << name;
  }
}

TEST_P(MachineCode, MoveVectorsAndLoadSeveralBeforeTheFirstIsUsed) {
  for (const auto& [name, facts] : facts_) {
    EXPECT_GE(facts.loads_in_flight * 16, kBytesInFlight) << name;
    EXPECT_GT(facts.wide_stores, 0) << name;
  }
}

// Checks the number of fences, which cost a message more than anything else: one for each release
// and each fence of the source, and none that the compiler adds.
TEST_P(MachineCode, HaveOneFenceForEachRelease) {
  const std::string ptx = test::ptx_of(GetParam().fatbin);
  for (const auto& [name, facts] : facts_) {
    const std::string body = body_of(ptx, name);
    EXPECT_EQ(facts.fences, occurrences(body, "st.release") + occurrences(body, "membar")) << name;
  }
}

std::string image_name(const ::testing::TestParamInfo<Image>& test) { return test.param.name; }
INSTANTIATE_TEST_SUITE_P(All, Images, ::testing::ValuesIn(all_images()), image_name);
INSTANTIATE_TEST_SUITE_P(All, MachineCode, ::testing::ValuesIn(all_images()), image_name);

TEST(Fatbins, AreRefusedIfTheyAreDamaged) {
  std::string zeros(256, '\0');
  EXPECT_THROW(test::read_fatbin(zeros.data()), std::runtime_error);
}

} // namespace
} // namespace whorl
