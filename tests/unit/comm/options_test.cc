// Tests of options from the environment: accepted values, and the names in errors.
#include "comm/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kernels/reduce.h"
#include "tests/unit/comm/clean_environment.h"

namespace whorl {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OptionsTest : public ::testing::Test {
 protected:
  static Options accepted(const char* name, const std::string& value) {
    setenv(name, value.c_str(), 1);
    const auto options = Options::from_environment();
    unsetenv(name);
    EXPECT_TRUE(options.ok()) << name << "=" << value << ": " << options.status().message();
    return options.ok() ? *options : Options();
  }
  static void refused(const char* name, const std::string& value, const std::string& reason) {
    setenv(name, value.c_str(), 1);
    const auto options = Options::from_environment();
    const auto made = make_options(nullptr);
    unsetenv(name);
    ASSERT_FALSE(options.ok()) << name << "=" << value;
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(options.status().code(), Code::kInvalidUsage);
    EXPECT_THAT(options.status().message(),
                AllOf(HasSubstr(name + ("=\"" + value + "\" ")), HasSubstr(reason)));
    EXPECT_EQ(made.status().message(), options.status().message());
  }

 private:
  test::CleanEnvironment environment_;
};

TEST_F(OptionsTest, DefaultsAreThoseOfTheTableOfParameters) {
  const auto options = Options::from_environment();
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->name, "");
  EXPECT_EQ(options->channels, 1);
  EXPECT_EQ(options->max_channels, 2);
  EXPECT_EQ(options->slots, 0);
  EXPECT_EQ(options->slot_bytes, 0U);
  EXPECT_FALSE(options->nontemporal_bytes.has_value());
  EXPECT_EQ(options->memory_budget, 0U);
  EXPECT_EQ(options->timeout_ns, 30'000'000'000U);
  EXPECT_THAT(options->transports, ElementsAre("inproc", "shm", "verbs", "tcp"));
  EXPECT_EQ(options->algorithms, "");
  EXPECT_EQ(options->dims, "");
  EXPECT_EQ(options->trace, "");
  EXPECT_EQ(options->trace_records, 65536U);
  EXPECT_FALSE(options->spins.has_value());
  EXPECT_FALSE(options->probe);
#ifdef NDEBUG
  EXPECT_FALSE(options->verify);
#else
  EXPECT_TRUE(options->verify);
#endif
}

/// Variable that is a whole number, and the field that it sets.
struct Number {
  const char* name;
  std::int64_t low, high;
  std::function<std::int64_t(const Options&)> field; ///< field; none: the number is used elsewhere
  bool may_be_empty = false;
};

std::vector<Number> numbers() {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  const auto signed_of = [](auto value) { return static_cast<std::int64_t>(value); };
  return {
      {"WHORL_CHANNELS", 1, 2, [](const Options& o) { return o.channels; }},
      {"WHORL_MAX_CHANNELS", 2, 16, [](const Options& o) { return o.max_channels; }},
      {"WHORL_SLOTS", 2, 64, [](const Options& o) { return o.slots; }, true},
      {"WHORL_SLOT_BYTES", 256, 16 << 20, [=](const Options& o) { return signed_of(o.slot_bytes); },
       true},
      {"WHORL_MEMORY_BUDGET", 0, kHuge,
       [=](const Options& o) { return signed_of(o.memory_budget); }},
      {"WHORL_NONTEMPORAL_BYTES", 0, kHuge,
       [=](const Options& o) { return signed_of(*o.nontemporal_bytes); }, true},
      {"WHORL_TIMEOUT_MS", 1, std::int64_t{1} << 31,
       [=](const Options& o) { return signed_of(o.timeout_ns / 1'000'000); }},
      {"WHORL_TRACE_RECORDS", 1, 1 << 28,
       [=](const Options& o) { return signed_of(o.trace_records); }},
      {"WHORL_SPINS", 0, 1'000'000'000, [=](const Options& o) { return signed_of(*o.spins); },
       true},
      {"WHORL_HEAP_BYTES", 4096, std::int64_t{1} << 46, {}, true},
      {"WHORL_SEGMENT_BYTES", 0, std::int64_t{1} << 40, {}},
      {"WHORL_TCP_BUFFER_BYTES", 0, 1 << 30, {}},
  };
}

TEST_F(OptionsTest, NumbersAreAcceptedWithinTheirBounds) {
  for (const Number& number : numbers()) {
    for (const std::int64_t value : {number.low, number.high}) {
      const Options options = accepted(number.name, std::to_string(value));
      if (number.field) {
        EXPECT_EQ(number.field(options), value) << number.name;
      }
    }
  }
}

TEST_F(OptionsTest, NumbersOutsideTheirBoundsAreRefused) {
  for (const Number& number : numbers()) {
    const std::string bounds = "is not a whole number from " + std::to_string(number.low) + " to " +
                               std::to_string(number.high);
    for (const std::string& value :
         {std::to_string(number.low - 1), std::to_string(number.high + 1),
          std::string("99999999999999999999"), std::string("-99999999999999999999")}) {
      refused(number.name, value, bounds);
    }
  }
}

TEST_F(OptionsTest, WhatIsNoNumberIsRefused) {
  for (const Number& number : numbers()) {
    for (const char* const value :
         {"many", "4Q", "4Kb", "K", "1.5M", "4.0", "0x4", " 4", "4 ", "+4", "-"}) {
      refused(number.name, value, "is not a whole number from");
    }
    if (!number.may_be_empty) refused(number.name, "", "is not a whole number from");
  }
}

TEST_F(OptionsTest, BytesMayHaveAUnit) {
  EXPECT_EQ(accepted("WHORL_SLOT_BYTES", "64K").slot_bytes, 65536U);
  EXPECT_EQ(accepted("WHORL_SLOT_BYTES", "16m").slot_bytes, std::size_t{16} << 20);
  EXPECT_EQ(accepted("WHORL_MEMORY_BUDGET", "3G").memory_budget, std::uint64_t{3} << 30);
  EXPECT_EQ(accepted("WHORL_NONTEMPORAL_BYTES", "0k").nontemporal_bytes, 0U);
  const std::string remedy = "is not a whole number from 256 to 16777216; K, M or G may follow it";
  for (const char* const value : {"17M", "255", "1G", "-1K", "9007199254740992K", "8589934592G"}) {
    refused("WHORL_SLOT_BYTES", value, remedy);
  }
  refused("WHORL_MEMORY_BUDGET", "8589934592G", "is not a whole number from 0 to"); // 2^63
  refused("WHORL_SLOTS", "4K", "is not a whole number from 2 to 64");
}

TEST_F(OptionsTest, AnEmptyNumberChoosesWhatSuits) {
  for (const Number& number : numbers()) {
    if (number.may_be_empty) static_cast<void>(accepted(number.name, ""));
  }
  EXPECT_FALSE(accepted("WHORL_SPINS", "").spins.has_value());
  EXPECT_FALSE(accepted("WHORL_NONTEMPORAL_BYTES", "").nontemporal_bytes.has_value());
  EXPECT_EQ(accepted("WHORL_SLOTS", "").slots, 0);
}

TEST_F(OptionsTest, OldNamesCountWhereNewOnesAreNotSet) {
  EXPECT_EQ(accepted("WHORL_STREAM_BYTES", "4096").nontemporal_bytes, 4096U);
  refused("WHORL_STREAM_BYTES", "many", "is not a whole number from");
  setenv("WHORL_STREAM_BYTES", "many", 1); // not looked at
  EXPECT_EQ(accepted("WHORL_NONTEMPORAL_BYTES", "512").nontemporal_bytes, 512U);
  refused("WHORL_NONTEMPORAL_BYTES", "few", "is not a whole number from");
  EXPECT_FALSE(accepted("WHORL_NONTEMPORAL_BYTES", "").nontemporal_bytes.has_value());
  unsetenv("WHORL_STREAM_BYTES");
  static_cast<void>(accepted("WHORL_PIECE_BYTES", "4096"));
  refused("WHORL_PIECE_BYTES", "many", "is not a whole number from");
  setenv("WHORL_PIECE_BYTES", "many", 1); // not looked at
  static_cast<void>(accepted("WHORL_SEGMENT_BYTES", "512"));
  unsetenv("WHORL_PIECE_BYTES");
}

TEST_F(OptionsTest, SlotsAreRoundedUpTo64Bytes) {
  EXPECT_EQ(accepted("WHORL_SLOT_BYTES", "257").slot_bytes, 320U);
  EXPECT_EQ(accepted("WHORL_SLOT_BYTES", "320").slot_bytes, 320U);
}

TEST_F(OptionsTest, ASmallBufferOfTcpIsRefused) {
  static_cast<void>(accepted("WHORL_TCP_BUFFER_BYTES", "4096"));
  refused("WHORL_TCP_BUFFER_BYTES", "4095", "is less than 4096; leave it out");
  refused("WHORL_TCP_BUFFER_BYTES", "1", "is less than 4096");
}

TEST_F(OptionsTest, ChannelsAreBoundedByTheLargestNumberOfThem) {
  setenv("WHORL_MAX_CHANNELS", "5", 1);
  EXPECT_EQ(accepted("WHORL_CHANNELS", "5").channels, 5);
  refused("WHORL_CHANNELS", "6", "from 1 to 5");
  setenv("WHORL_CHANNELS", "6", 1);
  EXPECT_THAT(Options::from_environment().status().message(),
              HasSubstr("the upper bound is WHORL_MAX_CHANNELS"));
}

TEST_F(OptionsTest, Switches) {
  struct Switch {
    const char* name;
    std::function<bool(const Options&)> field; ///< field; none: the flag is used elsewhere
    bool may_be_empty = false;
  };
  const Switch switches[] = {
      {"WHORL_PROBE", [](const Options& o) { return o.probe; }},
      {"WHORL_VERIFY", [](const Options& o) { return o.verify; }, true},
      {"WHORL_ENCRYPT", [](const Options& o) { return o.encrypts; }},
      {"WHORL_INSECURE", {}},
      {"WHORL_ZERO_COPY", {}},
      {"WHORL_DEVICE_IPC", {}},
  };
  for (const Switch& one : switches) {
    for (const char* const value : {"1", "true", "on"}) {
      const Options options = accepted(one.name, value);
      if (one.field) {
        EXPECT_TRUE(one.field(options)) << one.name;
      }
    }
    for (const char* const value : {"0", "false", "off"}) {
      const Options options = accepted(one.name, value);
      if (one.field) {
        EXPECT_FALSE(one.field(options)) << one.name;
      }
    }
    for (const char* const value : {"2", "yes", "TRUE", "1 "}) {
      refused(one.name, value, "is neither 1 nor 0");
    }
    if (!one.may_be_empty) refused(one.name, "", "is neither 1 nor 0");
  }
}

TEST_F(OptionsTest, TextsAreTakenAsTheyAre) {
  EXPECT_EQ(accepted("WHORL_ALGO", "allreduce:ring").algorithms, "allreduce:ring");
  EXPECT_EQ(accepted("WHORL_DIMS", "4:ring,2").dims, "4:ring,2");
  EXPECT_EQ(accepted("WHORL_TRACE", "/tmp/trace.%r").trace, "/tmp/trace.%r");
}

/// Returns the error of a variable's value.
std::string refusal_of(const char* name, const char* value) {
  setenv(name, value, 1);
  const Status status = Options::from_environment().status();
  unsetenv(name);
  EXPECT_EQ(status.code(), Code::kInvalidUsage) << value;
  return status.message();
}

TEST_F(OptionsTest, DimensionsAreCheckedButForTheirProduct) {
  EXPECT_THAT(refusal_of("WHORL_DIMS", "4:nonsense"), HasSubstr("no algorithm \"nonsense\""));
  EXPECT_THAT(refusal_of("WHORL_DIMS", "two"), HasSubstr("WHORL_DIMS=\"two\": a size is not"));
  accepted("WHORL_DIMS", "2147483647,2147483647,2147483647"); // whichever ranks there will be
}

TEST_F(OptionsTest, NamesOfAlgorithmsAreChecked) {
  const auto refusal = [](const char* value) { return refusal_of("WHORL_ALGO", value); };
  EXPECT_THAT(refusal("ring,allreduce:magic"),
              HasSubstr("WHORL_ALGO: there is no algorithm \"magic\" for allreduce"));
  EXPECT_THAT(refusal("magic"), HasSubstr("WHORL_ALGO: \"magic\" is neither an algorithm nor"));
  EXPECT_THAT(refusal("nosuch:ring"), HasSubstr("WHORL_ALGO: \"nosuch:ring\" is neither"));
  accepted("WHORL_ALGO", "hierarchical,all_reduce:hierarchical"); // whichever ranks there will be
}

TEST_F(OptionsTest, TransportsAreAListInItsOrder) {
  EXPECT_THAT(accepted("WHORL_TRANSPORTS", "tcp").transports, ElementsAre("tcp"));
  EXPECT_THAT(accepted("WHORL_TRANSPORTS", "tcp,shm").transports, ElementsAre("tcp", "shm"));
  // Empty names are kept here, and refused later together with unknown names.
  EXPECT_THAT(accepted("WHORL_TRANSPORTS", "tcp,,shm,").transports,
              ElementsAre("tcp", "", "shm", ""));
  EXPECT_THAT(accepted("WHORL_TRANSPORTS", "").transports, ElementsAre(""));
}

TEST_F(OptionsTest, EncryptionExcludesTransportsThatCannotEncrypt) {
  EXPECT_THAT(accepted("WHORL_ENCRYPT", "1").transports, Contains("verbs")) << "by default";
  setenv("WHORL_ENCRYPT", "1", 1);
  EXPECT_THAT(accepted("WHORL_TRANSPORTS", "shm,tcp").transports, ElementsAre("shm", "tcp"));
  for (const char* const list : {"verbs", "shm,ucx,tcp"}) {
    refused("WHORL_TRANSPORTS", list, "does not go together with WHORL_ENCRYPT=1");
  }
  unsetenv("WHORL_ENCRYPT");
}

TEST_F(OptionsTest, InstructionSets) {
  static_cast<void>(accepted("WHORL_SIMD", ""));
  for (const Simd simd : {Simd::kScalar, Simd::kAvx2, Simd::kAvx512, Simd::kNeon}) {
    const std::string name(name_of(simd));
    if (supported(simd)) {
      static_cast<void>(accepted("WHORL_SIMD", name));
    } else {
      refused("WHORL_SIMD", name, "is no instruction set of this build and processor");
    }
  }
  refused("WHORL_SIMD", "mmx", "they have scalar");
}

TEST_F(OptionsTest, LevelsOfTheLog) {
  // A level that does not exist is no reason to end a job: a warning says so, see
  // tests/unit/info/info_test.py.
  for (const char* const level : {"off", "error", "warn", "info", "", "WARN", "debug"}) {
    static_cast<void>(accepted("WHORL_LOG", level));
  }
}

} // namespace
} // namespace whorl
