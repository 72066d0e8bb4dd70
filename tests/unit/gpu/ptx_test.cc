// Tests of the interpreter of PTX: its memory is as bad as PTX allows and no worse, and what a
// device reports as a fault is an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <regex>
#include <string>

#include "tests/support/ptx/launch.h"

namespace whorl::test::ptx {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kSeeds = 300;

struct Parameter {
  std::uint32_t* data;
  std::uint32_t* flag;
  std::uint32_t* result;
};

/// Memory of a test, and nothing else.
class Words final : public AddressSpace {
 public:
  std::byte* reach(std::uint64_t address, std::size_t bytes) override {
    const std::uint64_t offset = address - reinterpret_cast<std::uintptr_t>(all);
    return offset < sizeof all && bytes <= sizeof all - offset
               ? reinterpret_cast<std::byte*>(address)
               : nullptr;
  }
  Parameter parameter() { return {&all[0], &all[32], &all[64]}; }
  alignas(128) std::uint32_t all[96] = {};
};

/// Returns a kernel of these instructions, which find the three addresses in %rd1 to %rd3.
std::string kernel_of(const std::string& body) {
  return R"(.visible .entry test(
  .param .align 8 .b8 test_param_0[24]
)
.maxntid 64, 1, 1
{
  .reg .pred %p<9>;
  .reg .b32 %r<9>;
  .reg .b64 %rd<9>;
  ld.param.u64 %rd1, [test_param_0];
  ld.param.u64 %rd2, [test_param_0+8];
  ld.param.u64 %rd3, [test_param_0+16];
)" + body +
         "  ret;\n}\n";
}

void run_once(const std::string& body, Words& words, const Launch& shape, std::uint64_t seed) {
  Memory memory;
  const Parameter parameter = words.parameter();
  Launch launch = shape;
  launch.parameter = reinterpret_cast<const std::byte*>(&parameter);
  launch.seed = seed;
  run(read_kernel(kernel_of(body), "test"), launch, memory, words);
}

/// Block 0 writes a message, and a flag after it, by the threads that `order` says; block 1 waits
/// for the flag and reads the message.
constexpr const char* kMessage = R"(
  mov.u32 %r1, %ctaid.y;
  mov.u32 %r2, %tid.x;
  setp.eq.s32 %p1, %r1, 1;
  @%p1 bra $receive;
  setp.ne.s32 %p2, %r2, 0;
  @%p2 bra $written;
  st.global.u32 [%rd1], 7;
$written:
  bar.sync 0;
  setp.ne.s32 %p3, %r2, 1;
  @%p3 bra $end;
  st.release.sys.global.u32 [%rd2], 1;
  bra.uni $end;
$receive:
  ld.global.u32 %r3, [%rd1];
$wait:
  ld.acquire.sys.global.u32 %r4, [%rd2];
  setp.ne.s32 %p4, %r4, 1;
  @%p4 bra $wait;
  ld.global.u32 %r3, [%rd1];
  setp.ne.s32 %p5, %r2, 0;
  @%p5 bra $end;
  st.global.u32 [%rd3], %r3;
$end:
)";

/// Returns in how many of all runs the message has not arrived with its flag.
int runs_without_message(const std::string& body, bool spread) {
  int missing = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Words words;
    run_once(body, words, {.y = 2, .threads = 2, .spread = spread}, seed);
    EXPECT_TRUE(words.all[64] == 7 || words.all[64] == 0) << words.all[64];
    if (words.all[64] != 7) ++missing;
  }
  return missing;
}

std::string with(const char* pattern, const char* replacement) {
  return std::regex_replace(std::string(kMessage), std::regex(pattern), replacement);
}

TEST(Ptx, AReleaseAndAnAcquireCarryAMessage) {
  EXPECT_EQ(runs_without_message(kMessage, true), 0);
  EXPECT_EQ(runs_without_message(kMessage, false), 0);
  const std::string fence =
      with("st\\.release\\.sys\\.global", "membar.sys;\n  st.relaxed.sys.global");
  EXPECT_EQ(runs_without_message(fence, true), 0);
}

TEST(Ptx, AMessageIsLateWithoutThem) {
  EXPECT_GT(runs_without_message(with("st\\.release\\.sys", "st.relaxed.sys"), true), 0);
  EXPECT_GT(runs_without_message(with("st\\.release\\.sys\\.", "st."), true), 0);
  EXPECT_GT(runs_without_message(with("ld\\.acquire\\.sys", "ld.relaxed.sys"), true), 0);
  EXPECT_GT(runs_without_message(with("bar\\.sync 0;", ""), true), 0);
}

TEST(Ptx, TheScopeOfADeviceIsForThreadsOfThatDevice) {
  for (const char* const pattern : {"release\\.sys", "acquire\\.sys"}) {
    const std::string narrow = with(pattern, pattern[0] == 'r' ? "release.gpu" : "acquire.gpu");
    EXPECT_EQ(runs_without_message(narrow, false), 0) << pattern;
    EXPECT_GT(runs_without_message(narrow, true), 0) << pattern;
  }
}

TEST(Ptx, AdditionsAreAtomic) {
  for (std::uint64_t seed = 0; seed < kSeeds / 10; ++seed) {
    Words words;
    run_once("  atom.global.add.u32 %r1, [%rd1], 1;\n", words, {.x = 3, .y = 2, .threads = 32},
             seed);
    EXPECT_EQ(words.all[0], 192U);
  }
}

TEST(Ptx, VotesAreThoseOfAllThreads) {
  const std::string body = R"(
  mov.u32 %r1, %tid.x;
  setp.eq.u32 %p1, %r1, 5;
  { .reg .pred %p1; mov.u32 %r3, 0; setp.ne.u32 %p1, %r3, 0; }
  bar.red.or.pred %p2, 0, %p1;
  selp.u32 %r2, 1, 0, %p2;
  atom.global.add.u32 %r4, [%rd1], %r2;
)";
  Words words;
  run_once(body, words, {.threads = 7}, 0);
  EXPECT_EQ(words.all[0], 7U);
}

/// Returns the error of a kernel.
std::string error_of(const std::string& body) {
  Words words;
  try {
    run_once(body, words, {}, 0);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Ptx, FaultsNameTheLine) {
  EXPECT_THAT(error_of("  ld.global.u32 %r1, [%rd3+128];\n"),
              HasSubstr("illegal address in block (0, 0), thread 0, line 12:   ld.global.u32"));
  EXPECT_THAT(error_of("  ld.global.v2.u32 {%r1, %r2}, [%rd1+4];\n"), HasSubstr("misaligned"));
  EXPECT_THAT(error_of("  ld.shared.u32 %r1, [%rd1];\n"), HasSubstr("illegal address"));
  EXPECT_THAT(error_of("  ld.param.u64 %rd1, [test_param_0+24];\n"), HasSubstr("illegal address"));
}

TEST(Ptx, WhatIsNotKnownIsNamed) {
  EXPECT_THAT(error_of("  add.sat.s32 %r1, %r2, 1;\n"),
              HasSubstr("line 12: unknown instruction 'add.sat.s32'"));
  EXPECT_THAT(error_of("  ld.global.nc.u32 %r1, [%rd1];\n"), HasSubstr("'ld.global.nc.u32'"));
  EXPECT_THAT(error_of("  .local .b8 depot[8];\n"), HasSubstr("unknown directive '.local'"));
  EXPECT_THAT(error_of("  mov.u32 %r1, %laneid;\n"), HasSubstr("unknown name '%laneid'"));
  EXPECT_THAT(error_of("  bra $nowhere;\n"), HasSubstr("unknown label '$nowhere'"));
}

} // namespace
} // namespace whorl::test::ptx
