// Tests of traces: every step is in the file, slices nest, the size is bounded.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "algorithms/algorithm.h"
#include "exec/chunk_map.h"
#include "exec/execution.h"
#include "exec/trace.h"
#include "schedule/builder.h"
#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

using nlohmann::json;

/// Folder for the files of one test.
class Trace : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "whorl-trace-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  json read(int rank) const {
    std::ifstream file(folder_ / ("trace." + std::to_string(rank) + ".json"));
    EXPECT_TRUE(file.is_open());
    return json::parse(file);
  }
  std::string pattern() const { return (folder_ / "trace.%r.json").string(); }

  std::filesystem::path folder_;
};

std::vector<json> events(const json& trace, const std::string& category) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"]) {
    if (event.value("cat", "") == category) found.push_back(event);
  }
  return found;
}

/// Checks that two slices of a thread are apart or one within the other, to the nanosecond: viewers
/// drop others.
void expect_nested(const json& trace) {
  struct Slice {
    std::int64_t begin, end;
  };
  std::map<int, std::vector<Slice>> threads;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const auto ns = [&](const char* key) { return std::llround(event[key].get<double>() * 1000); };
    threads[event["tid"].get<int>()].push_back({ns("ts"), ns("ts") + ns("dur")});
  }
  for (auto& [thread, slices] : threads) {
    std::ranges::stable_sort(slices, [](const Slice& a, const Slice& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::vector<Slice> open;
    for (const Slice& slice : slices) {
      while (!open.empty() && open.back().end <= slice.begin) open.pop_back();
      EXPECT_TRUE(open.empty() || slice.end <= open.back().end)
          << "thread " << thread << ": " << slice.begin << " to " << slice.end << " overlaps "
          << open.back().begin << " to " << open.back().end;
      open.push_back(slice);
    }
  }
}

constexpr std::size_t kCount = 100000;

void allreduce(ThreadWorld& world, int times) {
  world.each([&](int, whorlComm_t comm) {
    std::vector<float> data(kCount, 1.0F);
    std::string f;
    for (int i = 0; i < times && f.empty(); ++i) {
      f = failure(
          whorlAllReduce(data.data(), data.data(), kCount, whorlFloat32, whorlMax, comm, nullptr),
          comm);
    }
    return f;
  });
}

TEST_F(Trace, HasEveryStepOfTheScheduleAndSlicesThatNest) {
  constexpr int kRanks = 3;
  constexpr int kTimes = 4;
  constexpr std::size_t kSlotBytes = 65536;
  {
    const ScopedEnv env({{"WHORL_TRACE", pattern()},
                         {"WHORL_ALGO", "allreduce:ring"},
                         {"WHORL_SLOT_BYTES", std::to_string(kSlotBytes)}});
    ThreadWorld world(kRanks);
    allreduce(world, kTimes);
  }
  const Algorithm& ring = *find_algorithm(Collective::kAllReduce, "ring");
  double first = 0, last = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const json trace = read(rank);
    EXPECT_EQ(trace["otherData"]["lost"], 0);
    expect_nested(trace);
    const Schedule schedule = build_schedule(ring, {.nranks = kRanks}, rank);
    const auto map = ChunkMap::make(schedule, kCount, sizeof(float), kSlotBytes);
    ASSERT_TRUE(map.ok());
    std::size_t repetitions = 0;
    for (const Lane& lane : schedule.lanes) {
      for (const Step& step : lane.steps) repetitions += step.repeat;
    }
    const auto steps = events(trace, "step");
    EXPECT_EQ(steps.size(), repetitions * map->windows * kTimes);
    const auto operations = events(trace, "operation");
    ASSERT_EQ(operations.size(), static_cast<std::size_t>(kTimes));

    // Every step lies within its operation and begins when the previous step of its lane ended;
    // every wait lies within a step of its lane.
    constexpr double kRounding = 0.002;
    const auto begin = [](const json& e) { return e["ts"].get<double>(); };
    const auto end = [&](const json& e) { return begin(e) + e["dur"].get<double>(); };
    std::map<int, double> reached;
    for (const json& step : steps) {
      const json& operation = operations.at(step["args"]["operation"].get<std::size_t>() - 1);
      EXPECT_EQ(operation["name"], "allreduce ring");
      EXPECT_GE(begin(step), begin(operation) - kRounding);
      EXPECT_LE(end(step), end(operation) + kRounding);
      double& at = reached[step["tid"].get<int>()];
      EXPECT_GE(begin(step), at - kRounding);
      at = end(step);
      EXPECT_EQ(step["pid"], rank);
      if (step["args"].contains("to")) {
        EXPECT_EQ(step["args"]["to"], (rank + 1) % kRanks);
      }
    }
    for (const json& wait : events(trace, "wait")) {
      const bool inside = std::any_of(steps.begin(), steps.end(), [&](const json& step) {
        return step["tid"] == wait["tid"] && begin(step) <= begin(wait) + kRounding &&
               end(wait) <= end(step) + kRounding;
      });
      EXPECT_TRUE(inside) << wait;
    }
    // The ranks of a host share one clock: every first operation begins before any last one ends.
    if (rank == 0) {
      first = begin(operations[0]);
      last = end(operations[kTimes - 1]);
    } else {
      EXPECT_LT(begin(operations[0]), last);
      EXPECT_GT(end(operations[kTimes - 1]), first);
    }
  }
}

TEST_F(Trace, SlicesOfManySmallAndSimultaneousOperationsDoNotOverlap) {
  {
    const ScopedEnv env({{"WHORL_TRACE", pattern()}});
    ThreadWorld world(2);
    world.each([&](int rank, whorlComm_t comm) {
      const int peer = 1 - rank;
      std::vector<float> data(kCount, 1.0F), sent = data, received(kCount);
      std::vector<float> other(8, 1.0F), others(8);
      std::string f;
      for (int i = 0; i < 200 && f.empty(); ++i) {
        f = failure(
            whorlAllReduce(other.data(), other.data(), 8, whorlFloat32, whorlMax, comm, nullptr),
            comm);
        if (!f.empty() || i % 20 != 0) continue;
        whorlGroupStart();
        whorlSend(sent.data(), kCount, whorlFloat32, peer, comm, nullptr);
        whorlRecv(received.data(), kCount, whorlFloat32, peer, comm, nullptr);
        whorlAllReduce(data.data(), data.data(), kCount, whorlFloat32, whorlMax, comm, nullptr);
        whorlAllGather(other.data(), others.data(), 4, whorlFloat32, comm, nullptr);
        f = failure(whorlGroupEnd(), comm);
      }
      return f;
    });
  }
  for (int rank = 0; rank < 2; ++rank) {
    const json trace = read(rank);
    EXPECT_GE(events(trace, "operation").size(), 200u);
    expect_nested(trace);
  }
}

TEST_F(Trace, KeepsTheLastStepsAndSaysHowManyAreLost) {
  {
    const ScopedEnv env({{"WHORL_TRACE", pattern()}, {"WHORL_TRACE_RECORDS", "50"}});
    ThreadWorld world(2);
    allreduce(world, 100);
  }
  const json trace = read(0);
  const auto operations = events(trace, "operation");
  EXPECT_EQ(events(trace, "step").size() + operations.size(), 50U);
  EXPECT_GT(trace["otherData"]["lost"], 0);
  EXPECT_EQ(operations.back()["args"]["operation"], 100);
}

TEST_F(Trace, SendsAndReceivesHaveTracksOfTheirOwn) {
  {
    const ScopedEnv env({{"WHORL_TRACE", pattern()}});
    ThreadWorld world(2);
    world.each([](int rank, whorlComm_t comm) {
      int value = rank;
      return failure(rank == 0 ? whorlSend(&value, 1, whorlInt32, 1, comm, nullptr)
                               : whorlRecv(&value, 1, whorlInt32, 0, comm, nullptr),
                     comm);
    });
  }
  EXPECT_EQ(events(read(0), "step").at(0)["tid"], 1003);
  EXPECT_EQ(events(read(1), "step").at(0)["tid"], 1000);
}

TEST_F(Trace, AFileThatCannotBeWrittenIsAnError) {
  const ScopedEnv env({{"WHORL_TRACE", (folder_ / "absent" / "x").string()}});
  const std::string error = creation_error(2);
  EXPECT_NE(error.find("WHORL_TRACE"), std::string::npos) << error;
  EXPECT_NE(error.find("absent"), std::string::npos) << error;
}

TEST_F(Trace, AFullDiskIsAWarning) {
  const ScopedEnv env({{"WHORL_TRACE", (folder_ / "%r").string()}});
  std::filesystem::create_symlink("/dev/full", folder_ / "0");
  ::testing::internal::CaptureStderr();
  { const ThreadWorld world(1); }
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(
                "WHORL_TRACE: rank 0 cannot write all of " + (folder_ / "0").string() +
                ": No space left on device"),
            std::string::npos);
}

TEST_F(Trace, LanesOfOneChannelHaveTracksOfTheirOwn) {
  struct Nobody final : Execution::Endpoints {
    Endpoint* find(std::uint32_t, std::uint16_t) noexcept override { return nullptr; }
  } nobody;
  ScheduleBuilder builder(1, 0, 3);
  for (int lane = 0; lane < 3; ++lane) builder.lane(lane / 2).copy(lane, lane);
  const Schedule schedule = std::move(builder).build();
  const auto map = ChunkMap::make(schedule, 3, sizeof(int), 4096);
  ASSERT_TRUE(map.ok());
  const std::array<int, 3> in{1, 2, 3};
  std::array<int, 3> out{};
  auto trace = whorl::Trace::open(pattern(), 10, {});
  ASSERT_TRUE(trace.ok());
  Execution execution;
  execution.trace_to(trace->get(), 0);
  execution.start({.schedule = &schedule,
                   .map = *map,
                   .kernels = {.element_size = sizeof(int)},
                   .input = reinterpret_cast<const std::byte*>(in.data()),
                   .output = reinterpret_cast<std::byte*>(out.data())},
                  nobody);
  ASSERT_EQ(execution.advance(), Progress::kDone);
  EXPECT_EQ(out, in);
  (*trace)->write({});
  const json file = read(0);
  std::set<int> tracks;
  for (const json& step : events(file, "step")) tracks.insert(step["tid"].get<int>());
  EXPECT_EQ(tracks.size(), 3U);
  std::set<std::string> names;
  for (const json& event : file["traceEvents"]) {
    if (event["name"] == "thread_name") names.insert(event["args"]["name"]);
  }
  EXPECT_EQ(names, (std::set<std::string>{"channel 0", "channel 0, lane 1", "channel 1"}));
}

TEST_F(Trace, EveryRankHasTracksOfItsOwn) {
  auto trace = whorl::Trace::open(pattern(), 10, {});
  ASSERT_TRUE(trace.ok());
  const std::vector<int> peers{0, 32267, 32268, 65535};
  const auto add = [&](std::uint32_t track) {
    const std::uint64_t now = ticks(); // a time long before the trace could be before that of 0 ns
    (*trace)->add({.begin = now, .end = now, .track = track});
  };
  for (const int peer : peers) {
    add(whorl::Trace::transfers(peer, false));
    add(whorl::Trace::transfers(peer, true));
  }
  add(whorl::Trace::lanes(3, 0));
  add(whorl::Trace::lanes(3, 2));
  (*trace)->write({});
  std::vector<std::string> names;
  const json file = read(0);
  for (const json& event : file["traceEvents"]) {
    if (event["name"] == "thread_name") names.push_back(event["args"]["name"]);
  }
  std::vector<std::string> expected;
  for (const int peer : peers) {
    expected.push_back("from rank " + std::to_string(peer));
    expected.push_back("to rank " + std::to_string(peer));
  }
  expected.insert(expected.end(), {"channel 3", "channel 3, lane 2"});
  EXPECT_EQ(names, expected);
}

} // namespace
} // namespace whorl::test
