#include "perf/common/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace perf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::variant<Options, Exit> parse_line(std::vector<const char*> arguments, int cores = 2) {
  arguments.insert(arguments.begin(), "all_reduce_perf");
  return parse(static_cast<int>(arguments.size()), arguments.data(), "all_reduce_perf", true,
               cores);
}

Options accepted(const std::vector<const char*>& arguments, int cores = 2) {
  const auto result = parse_line(arguments, cores);
  if (const Exit* end = std::get_if<Exit>(&result)) {
    ADD_FAILURE() << end->text;
    return {};
  }
  return std::get<Options>(result);
}

std::string refused(const std::vector<const char*>& arguments) {
  const auto result = parse_line(arguments);
  const Exit* end = std::get_if<Exit>(&result);
  if (end == nullptr) {
    ADD_FAILURE() << "accepted";
    return "";
  }
  EXPECT_EQ(end->code, 2);
  // One line of one or two sentences.
  EXPECT_EQ(end->text.find('\n'), end->text.size() - 1) << end->text;
  return end->text;
}

TEST(ParseSize, TakesSuffixesOfPowersOf1024) {
  const std::pair<const char*, std::size_t> cases[] = {
      {"0", 0},          {"8", 8},          {"64K", 64 << 10}, {"64k", 64 << 10},
      {"1.5M", 3 << 19}, {"2G", 2ul << 30}, {"4KB", 4 << 10},  {"7b", 7},
  };
  for (const auto& [text, expected] : cases) {
    std::size_t bytes = 1;
    EXPECT_TRUE(parse_size(text, &bytes)) << text;
    EXPECT_EQ(bytes, expected) << text;
  }
}

TEST(ParseSize, RefusesWhatIsNoSize) {
  for (const char* text : {"", "K", "-1", "1T", "1KK", "12 ", " 8", "nan", "inf", "1e30"}) {
    std::size_t bytes = 0;
    EXPECT_FALSE(parse_size(text, &bytes)) << text;
  }
}

TEST(Options, HaveTheKnownFlagsMeaning) {
  const Options o =
      accepted({"-b", "1K", "-e",     "1M",   "-f",      "4",          "-n",      "7",  "-w",
                "3",  "-c", "2",      "-m",   "5",       "-o",         "max",     "-d", "half",
                "-r", "3",  "-t",     "2",    "-g",      "2",          "--ranks", "8",  "-z",
                "1",  "-C", "1",      "-a",   "3",       "-p",         "1",       "-J", "out.json",
                "-T", "9",  "--mode", "cold", "--alloc", "registered", "--stream"});
  EXPECT_EQ(o.min_bytes, 1024u);
  EXPECT_EQ(o.max_bytes, 1u << 20);
  EXPECT_EQ(o.step_factor, 4);
  EXPECT_EQ(o.step_bytes, 0u);
  EXPECT_EQ(o.iterations, 7);
  EXPECT_EQ(o.warmup, 3);
  EXPECT_EQ(o.check_iterations, 2);
  EXPECT_EQ(o.aggregate, 5);
  EXPECT_THAT(o.operators, ElementsAre(Operator::kMax));
  EXPECT_THAT(o.types, ElementsAre(XCCL(Float16)));
  EXPECT_EQ(o.root, 3);
  EXPECT_EQ(o.threads, 2);
  EXPECT_EQ(o.ranks_per_thread, 2);
  EXPECT_EQ(o.ranks, 8);
  EXPECT_TRUE(o.blocking);
  EXPECT_TRUE(o.cpu_time);
  EXPECT_TRUE(o.stream);
  EXPECT_EQ(o.average, Average::kMax);
  EXPECT_EQ(o.json_file, "out.json");
  EXPECT_EQ(o.timeout_s, 9);
  EXPECT_EQ(o.mode, Mode::kCold);
  EXPECT_EQ(o.alloc, Alloc::kRegistered);
}

TEST(Options, FlagsAboutDevicesAreDoneOrNoted) {
  const Options o = accepted({"-N", "3", "-u", "5", "-S", "1", "-M", "1", "-R", "1", "-y", "1"});
  EXPECT_EQ(o.cycles, 3);
  EXPECT_EQ(o.first_element, 5);
  EXPECT_TRUE(o.timestamps);
  EXPECT_TRUE(o.memory_report);
  EXPECT_EQ(o.alloc, Alloc::kRegistered);
  EXPECT_THAT(o.notes, ::testing::IsEmpty());
  EXPECT_EQ(accepted({"-R", "2"}).alloc, Alloc::kWhorl);
  EXPECT_EQ(accepted({"-R", "0", "--alloc", "whorl"}).alloc, Alloc::kWhorl);
  const Options noted = accepted({"-G", "4", "-x", "1", "-D", "2", "-V", "16", "-p", "1"});
  EXPECT_THAT(noted.notes,
              ElementsAre(HasSubstr("-G has no effect"), HasSubstr("-x has no effect"),
                          HasSubstr("-D has no effect"), HasSubstr("-V has no effect")));
  EXPECT_THAT(accepted({"-G", "0", "-x", "0"}).notes, ::testing::IsEmpty());
}

TEST(Options, DefaultToADirtySweepOverAllCores) {
  const Options o = accepted({}, 6);
  EXPECT_EQ(o.mode, Mode::kDirty);
  EXPECT_EQ(o.ranks, 6);
  EXPECT_FALSE(o.ranks_given);
  EXPECT_THAT(o.operators, ElementsAre(Operator::kSum));
  EXPECT_THAT(o.types, ElementsAre(XCCL(Float32)));
  EXPECT_EQ(accepted({}, 1).ranks, 2);
  EXPECT_EQ(accepted({}, 0).ranks, 2);
  EXPECT_EQ(accepted({"-t", "4"}, 2).ranks, 4); // rounded up to whole processes
  EXPECT_EQ(accepted({"-b", "1G"}).max_bytes, 1u << 30);
}

TEST(Options, BuffersMayMove) {
  EXPECT_EQ(accepted({"--mode", "moving"}).mode, Mode::kMoving);
  EXPECT_STREQ(name_of(Mode::kMoving), "moving");
  EXPECT_TRUE(accepted({"--mode", "moving", "--percentiles"}).percentiles);
  EXPECT_THAT(refused({"--mode", "warm", "--percentiles"}), HasSubstr("timed one by one"));
}

TEST(Options, OperationsMayBeginTogether) {
  EXPECT_FALSE(accepted({}).together);
  EXPECT_TRUE(accepted({"--mode", "moving", "--together"}).together);
  EXPECT_THAT(refused({"--mode", "cold", "--together"}), HasSubstr("--together needs operations"));
}

TEST(Options, ComputingMayBePartOfTheTime) {
  EXPECT_EQ(accepted({}).compute_us, 0);
  EXPECT_EQ(accepted({"--compute", "0.5", "--stream"}).compute_us, 0.5);
  for (const char* const bad : {"-1", "1e7", "nan"}) {
    EXPECT_THAT(refused({"--compute", bad}), HasSubstr("--compute"));
  }
}

TEST(Options, SizesMayBeNamedOneByOne) {
  EXPECT_THAT(sweep_sizes(accepted({"--sizes", "1M,8,64K,8", "-b", "1K"})),
              ElementsAre(8, 64 << 10, 1 << 20));
  EXPECT_EQ(accepted({"--sizes", "1M,64K"}).min_bytes, 64u << 10);
  EXPECT_EQ(accepted({"--sizes", "1M,64K"}).max_bytes, 1u << 20);
  const Options o = accepted({"--budget", "20", "--side", "in"});
  EXPECT_EQ(o.budget_ms, 20);
  EXPECT_EQ(o.side, Side::kInPlace);
  EXPECT_EQ(accepted({}).side, Side::kBoth);
}

TEST(Options, AllMeansEveryOne) {
  const Options o = accepted({"-o", "all", "-d", "all", "-r", "all"});
  EXPECT_EQ(o.operators.size(), 9u);
  EXPECT_EQ(o.types.size(), 15u);
  EXPECT_EQ(o.root, -1);
  EXPECT_EQ(accepted({"-r", "-1"}).root, -1);
}

TEST(Options, TheLastOfEqualFlagsCounts) {
  EXPECT_EQ(accepted({"-n", "5", "-n", "7"}).iterations, 7);
}

TEST(Options, TypesHaveAliases) {
  EXPECT_THAT(accepted({"-d", "bf16"}).types, ElementsAre(XCCL(Bfloat16)));
  EXPECT_THAT(accepted({"-d", "float32"}).types, ElementsAre(XCCL(Float32)));
  EXPECT_THAT(accepted({"-d", "fp8_e5m2"}).types, ElementsAre(XCCL(Float8e5m2)));
}

TEST(Options, BadValuesAreOneSentenceNamingFlagAndValue) {
  EXPECT_THAT(refused({"-b", "foo"}), HasSubstr("-b foo"));
  EXPECT_THAT(refused({"-b", "8K", "-e", "4K"}), HasSubstr("-e 4K is smaller than -b 8K"));
  EXPECT_THAT(refused({"-i", "0"}), HasSubstr("-i 0"));
  EXPECT_THAT(refused({"-i", "1", "-e", "1G"}), HasSubstr("larger step"));
  EXPECT_THAT(refused({"-i", "1K", "-f", "2"}), HasSubstr("exclude"));
  EXPECT_THAT(refused({"-f", "1"}), HasSubstr("-f"));
  EXPECT_THAT(refused({"-f", "nan"}), HasSubstr("-f"));
  EXPECT_THAT(refused({"-f", "0"}), HasSubstr("-f"));
  EXPECT_THAT(refused({"-n", "0"}), HasSubstr("-n"));
  EXPECT_THAT(refused({"-n", "x"}), HasSubstr("iters"));
  EXPECT_THAT(refused({"-o", "xor"}), HasSubstr("-o xor"));
  EXPECT_THAT(refused({"-d", "float17"}), HasSubstr("-d float17"));
  EXPECT_THAT(refused({"-r", "two"}), HasSubstr("-r two"));
  EXPECT_THAT(refused({"--ranks", "3", "-t", "2"}), HasSubstr("do not divide"));
  EXPECT_THAT(refused({"--ranks", "0"}), HasSubstr("--ranks"));
  EXPECT_THAT(refused({"-N", "-1"}), HasSubstr("-N"));
  EXPECT_THAT(refused({"-N", "0", "-J", "x"}), HasSubstr("-N 0 has no end"));
  EXPECT_THAT(refused({"-N", "2", "--workload", "gpt2"}), HasSubstr("leave out -N"));
  EXPECT_THAT(refused({"-R", "3"}), HasSubstr("local_register"));
  EXPECT_THAT(refused({"-R", "1", "--alloc", "whorl"}), HasSubstr("one of them"));
  EXPECT_THAT(refused({"-y", "1", "--stream"}), HasSubstr("one of them"));
  EXPECT_THAT(refused({"-u", "-1"}), HasSubstr("unalign"));
  EXPECT_THAT(refused({"-a", "4"}), HasSubstr("-a"));
  EXPECT_THAT(refused({"-z", "2"}), HasSubstr("blocking"));
  EXPECT_THAT(refused({"-C", "-1"}), HasSubstr("cputime"));
  EXPECT_THAT(refused({"-S", "2"}), HasSubstr("timestamps"));
  EXPECT_THAT(refused({"-M", "x"}), HasSubstr("memory_report"));
  EXPECT_THAT(refused({"--mode", "hot"}), HasSubstr("--mode hot"));
  EXPECT_THAT(refused({"--sizes", "8,many"}), HasSubstr("--sizes many"));
  EXPECT_THAT(refused({"--side", "left"}), HasSubstr("--side left"));
  EXPECT_THAT(refused({"--budget", "-1"}), HasSubstr("--budget"));
  EXPECT_THAT(refused({"--alloc", "stack"}), HasSubstr("--alloc stack"));
  EXPECT_THAT(refused({"--workload", "lenet"}), HasSubstr("resnet50"));
  EXPECT_THAT(refused({"--workload", "resnet50", "--mode", "moving"}), HasSubstr("leave out"));
  EXPECT_THAT(refused({"--frobnicate"}), HasSubstr("--frobnicate"));
}

TEST(Options, HelpEndsWithSuccessAndNamesEveryFlag) {
  const auto result = parse_line({"-h"});
  const Exit& end = std::get<Exit>(result);
  EXPECT_EQ(end.code, 0);
  for (const char* flag :
       {"-b",      "-e",       "-i",         "-f",      "-n",       "-w",    "-c",
        "-o",      "-d",       "-r",         "-t",      "-g",       "-m",    "-p",
        "-z",      "-C",       "-J",         "-h",      "--ranks",  "-a",    "--mode",
        "--alloc", "--stream", "--workload", "--sizes", "--budget", "--side"}) {
    EXPECT_THAT(end.text, HasSubstr(flag));
  }
}

TEST(Options, OnlyAllReduceReplaysWorkloads) {
  const char* line[] = {"reduce_perf", "--workload", "gpt2"};
  EXPECT_EQ(std::get<Exit>(parse(3, line, "reduce_perf", false, 2)).code, 2);
}

TEST(SweepSizes, MultiplyOrAdd) {
  EXPECT_THAT(sweep_sizes(accepted({"-b", "8", "-e", "64"})), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(sweep_sizes(accepted({"-b", "8", "-e", "100", "-f", "3"})), ElementsAre(8, 24, 72));
  EXPECT_THAT(sweep_sizes(accepted({"-b", "8", "-e", "20", "-i", "5"})), ElementsAre(8, 13, 18));
  EXPECT_THAT(sweep_sizes(accepted({"-b", "1M", "-e", "1M"})), ElementsAre(1 << 20));
  EXPECT_THAT(sweep_sizes(accepted({"-b", "0", "-e", "4"})), ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(sweep_sizes(accepted({"-b", "2", "-e", "5", "-f", "1.1"})), ElementsAre(2, 3, 4, 5));
}

} // namespace
} // namespace perf
