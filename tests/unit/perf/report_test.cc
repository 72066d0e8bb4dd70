#include "perf/common/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "perf/common/collective.h"
#include "perf/common/progress.h"

namespace perf {
namespace {

using ::testing::HasSubstr;

Row sample_row() {
  Row row{1048576, 262144, XCCL(Float32), Operator::kSum, -1, 1, "ring", "2026-11-26 18:00:00",
          {},      {}};
  row.out_of_place = {true, 123.456, 8.4934, 12.7401, 0};
  row.in_place = {true, 0.0912, 11.5, 17.25, 3};
  return row;
}

std::vector<RankInfo> two_ranks() {
  std::vector<RankInfo> ranks{{0, 100, 0, {}, -1, {}}, {1, 101, 0, {}, -1, {}}};
  for (RankInfo& rank : ranks) std::strcpy(rank.host, "node1");
  return ranks;
}

TEST(Report, PercentilesAreTimesThatHappened) {
  std::vector<float> times;
  EXPECT_EQ(percentiles_of(times).max_us, 0);
  times = {7};
  EXPECT_EQ(percentiles_of(times).p50_us, 7);
  EXPECT_EQ(percentiles_of(times).p999_us, 7);
  times.clear();
  for (int i = 2000; i > 0; --i) times.push_back(static_cast<float>(i));
  const Percentiles found = percentiles_of(times);
  EXPECT_EQ(found.p50_us, 1000);
  EXPECT_EQ(found.p99_us, 1980);
  EXPECT_EQ(found.p999_us, 1998);
  EXPECT_EQ(found.max_us, 2000);
}

TEST(Report, PercentilesStandBelowTheirRow) {
  Row row = sample_row();
  row.out_of_place.valid = false;
  row.in_place.iterations = 20;
  row.in_place.percentiles = {.p50_us = 0.25, .p99_us = 12.5, .p999_us = 100, .max_us = 12345};
  EXPECT_EQ(format_percentiles(row),
            "#   in-place     p50   0.250  p99   12.50  p99.9   100.0  max   12345 us, of 20 "
            "operations\n");
}

TEST(Report, RowHasTheKnownColumns) {
  EXPECT_EQ(format_row(sample_row()),
            "      1048576        262144     float     sum      -1"
            "    123.5    8.49   12.74      0"
            "    0.091   11.50   17.25      3\n");
}

TEST(Report, TimestampsAreTheLastColumn) {
  Options options;
  options.timestamps = true;
  const std::string header = format_header("x", options, {nullptr, two_ranks(), ""});
  EXPECT_THAT(header, HasSubstr("#wrong  timestamp\n"));
  EXPECT_TRUE(format_row(sample_row(), true).ends_with("      3  2026-11-26 18:00:00\n"));
  EXPECT_THAT(local_time(), ::testing::MatchesRegex("....-..-.. ..:..:.."));
}

TEST(Report, NotesAreLinesOfTheHeader) {
  Options options;
  options.notes = {"-x has no effect", "-V has no effect"};
  EXPECT_THAT(format_header("x", options, {nullptr, two_ranks(), ""}),
              HasSubstr("\n# -x has no effect\n# -V has no effect\n"));
}

TEST(Report, MemoryIsThatOfTheLargestRank) {
  Summary summary;
  summary.communicator_bytes = 3 << 19;
  summary.buffer_bytes = 256 << 20;
  EXPECT_EQ(format_memory(summary),
            "# Memory of the rank that uses most: communicator 1.5 MiB, buffers 256.0 MiB\n");
}

TEST(Report, AbsentSidesAndUnverifiedResultsAreNotApplicable) {
  Row row = sample_row();
  row.op = Operator::kNone;
  row.out_of_place.wrong = -1;
  row.in_place.valid = false;
  EXPECT_EQ(format_row(row),
            "      1048576        262144     float    none      -1"
            "    123.5    8.49   12.74    N/A"
            "      N/A     N/A     N/A    N/A\n");
}

TEST(Report, TitlesStandAboveTheirColumns) {
  const std::string header =
      format_header("all_reduce_perf", Options{}, {nullptr, two_ranks(), "2 ranks on 1 host"});
  std::vector<std::string> lines;
  for (std::size_t at = 0, end; (end = header.find('\n', at)) != std::string::npos; at = end + 1) {
    lines.push_back(header.substr(at, end - at));
  }
  const std::string row = format_row(sample_row());
  const std::string& titles = lines[lines.size() - 2];
  // Columns are right-aligned: a title and its value end at the same place.
  EXPECT_EQ(titles.find("size") + 4, row.find("1048576") + 7);
  EXPECT_EQ(titles.find("redop") + 5, row.find("sum") + 3);
  EXPECT_EQ(titles.find("time") + 4, row.find("123.5") + 5);
  EXPECT_EQ(titles.rfind("busbw") + 5, row.find("17.25") + 5);
  EXPECT_EQ(titles.size(), row.size() - 1);
  for (const std::string& line : lines) EXPECT_EQ(line[0], '#');
}

TEST(Report, HeaderNamesRanksModeAndHowTheyWereStarted) {
  Options options;
  options.ranks = 2;
  const std::string header = format_header("all_reduce_perf", options, {nullptr, two_ranks(), ""});
  EXPECT_THAT(header, HasSubstr("2 ranks in 2 processes on 1 host, started by the program itself"));
  EXPECT_THAT(header, HasSubstr("#  Rank  1 Pid    101 Thread  0 on node1"));
  EXPECT_THAT(header, HasSubstr("# mode dirty:"));
  EXPECT_THAT(format_header("x", options, {"Open MPI", two_ranks(), ""}), HasSubstr("Open MPI"));
}

TEST(Report, SummaryFailsOnWrongElementsAndChangedGuards) {
  const Row row = sample_row(); // with 3 wrong elements
  const Summary summary = summarize({row}, {}, 2, true);
  EXPECT_EQ(summary.out_of_bounds, 5);
  EXPECT_DOUBLE_EQ(summary.avg_busbw_gbs, (12.7401 + 17.25) / 2);
  EXPECT_THAT(format_summary(summary), HasSubstr("# Out of bounds values : 5 FAILED\n"));

  Row good = row;
  good.in_place.valid = false;
  EXPECT_EQ(format_summary(summarize({good}, {}, 0, true)),
            "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 12.7401 \n#\n");
  EXPECT_THAT(format_summary(summarize({good}, {}, 0, false)), HasSubstr("not verified"));
}

TEST(Report, StepsStandForTheirBuckets) {
  const StepResult step{"gpt2", XCCL(Float32),       Operator::kSum, 148, 10, 2,
                        40,     {true, 5, 1, 1.5, 4}};
  const Summary summary = summarize({sample_row()}, {step}, 0, true);
  EXPECT_EQ(summary.out_of_bounds, 4);
  EXPECT_DOUBLE_EQ(summary.avg_busbw_gbs, 1.5);
}

TEST(Report, JsonCarriesConfigurationMachineRanksAndRows) {
  const std::vector<Row> rows{sample_row()};
  Options options;
  options.command = {"all_reduce_perf", "-b", "1M"};
  ::setenv("WHORL_SPINS", "7", 1);
  const auto json = nlohmann::json::parse(
      to_json("all_reduce_perf", options, {nullptr, two_ranks(), "2 ranks on 1 host"},
              this_machine(), rows, {}, summarize(rows, {}, 0, true)));
  EXPECT_EQ(json["program"], "all_reduce_perf");
  ::unsetenv("WHORL_SPINS");
  EXPECT_EQ(json["command"], options.command);
  EXPECT_EQ(json["environment"]["WHORL_SPINS"], "7");
  EXPECT_FALSE(json["environment"].contains("PATH"));
  EXPECT_THAT(std::string(json["date"]), ::testing::MatchesRegex("....-..-..T..:..:..Z"));
  EXPECT_EQ(json["rows"][0]["cycle"], 1);
  EXPECT_EQ(json["rows"][0]["algorithm"], "ring");
  EXPECT_EQ(json["topology"], "2 ranks on 1 host");
  EXPECT_EQ(json["config"]["mode"], "dirty");
  EXPECT_EQ(json["ranks"].size(), 2u);
  EXPECT_EQ(json["rows"][0]["bytes"], 1048576);
  EXPECT_EQ(json["rows"][0]["type"], "float");
  EXPECT_DOUBLE_EQ(json["rows"][0]["out_of_place"]["time_us"], 123.456);
  EXPECT_TRUE(json["rows"][0]["out_of_place"]["p50_us"].is_null()); // not timed one by one
  EXPECT_EQ(json["rows"][0]["in_place"]["wrong"], 3);
  EXPECT_EQ(json["out_of_bounds"], 3);
  EXPECT_GT(json["machine"]["cores"], 0);
}

TEST(Progress, EstimatesTheRestFromTheLastRow) {
  constexpr std::size_t kMiB = 1 << 20;
  EXPECT_EQ(Progress::estimate({8, 16, 32}, 1, 2), 4); // small sizes take the same time
  EXPECT_EQ(Progress::estimate({kMiB, 2 * kMiB, 4 * kMiB}, 1, 1), 6);
  EXPECT_EQ(Progress::estimate({kMiB, 8}, 1, 1),
            1); // no less than the last: what is fixed is unknown
  EXPECT_EQ(Progress::estimate({8}, 1, 1), 0);
  EXPECT_EQ(Progress::estimate({8}, 0, 0), 0);
}

TEST(BusFactor, IsWhatTheCollectiveMovesForEachRank) {
  EXPECT_DOUBLE_EQ(factor_one(4), 1);
  EXPECT_DOUBLE_EQ(factor_others(4), 0.75);
  EXPECT_DOUBLE_EQ(factor_twice_others(4), 1.5);
  EXPECT_DOUBLE_EQ(factor_twice_others(2), 1);
  EXPECT_DOUBLE_EQ(factor_others(1), 0);
}

} // namespace
} // namespace perf
