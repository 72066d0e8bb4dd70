#include "schedule/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "schedule/builder.h"
#include "unit/schedule/handmade.h"

namespace whorl {
namespace {

using ::testing::HasSubstr;
using Schedules = std::vector<Schedule>;

std::string error_of(const Schedules& schedules, const CollectiveSpec& spec = {},
                     const VerifyOptions& options = {}) {
  const auto report = verify(schedules, spec, options);
  return report.ok() ? "" : report.status().message();
}

TEST(Verify, AcceptsWhatIsRight) {
  for (const int n : {2, 3, 4, 5, 8, 17, 64, 65, 100}) {
    for (handmade::Named& named : handmade::all(n)) {
      for (const int form : {0, 1, 2}) { // copied, published, and placed as well
        for (const bool in_place : {false, true}) {
          named.spec.in_place = in_place;
          if (in_place && named.spec.collective == Collective::kAllToAll) continue;
          const auto report =
              verify(named.schedules, named.spec, {.published = form > 0, .placed = form == 2});
          EXPECT_TRUE(report.ok())
              << named.name << " of " << n << ": " << report.status().message();
        }
      }
    }
  }
}

TEST(Verify, ReportsWhatItCounts) {
  for (const int n : {3, 4, 7}) {
    const auto ring = verify(handmade::ring(n), {});
    EXPECT_EQ(ring->min_slots, 2); // a fused ring deadlocks with one
    EXPECT_EQ(ring->messages, n * 2 * (n - 1));
    EXPECT_EQ(ring->max_sent_chunks, 2 * (n - 1));
    EXPECT_EQ(ring->rounds, 2 * (n - 1));
    const auto two_shot = verify(handmade::two_shot(n), {});
    EXPECT_EQ(two_shot->min_slots, 2);
    EXPECT_EQ(two_shot->rounds, 2);
    EXPECT_EQ(two_shot->messages, n * 2 * (n - 1));
    const auto gather = verify(handmade::ring_all_gather(n), {Collective::kAllGather});
    EXPECT_EQ(gather->max_sent_chunks, 2 * (n - 1));
    EXPECT_EQ(gather->rounds, n - 1);
  }
  EXPECT_EQ(verify(handmade::tree(7, 2), {})->rounds, 4);
  EXPECT_EQ(verify(handmade::two_lane_tree(7), {})->rounds, 4); // through the wait
}

TEST(Verify, DeadlockNamesWhoWaitsForWhom) {
  const std::string one_slot = error_of(handmade::ring(3), {}, {.slots = 1});
  EXPECT_THAT(one_slot, HasSubstr("Deadlock"));
  EXPECT_THAT(one_slot, HasSubstr("Rank 0, lane 0 (channel 0), step 1 (recv_reduce_send), "
                                  "repetition 0, window 0 waits for a free slot to rank 1"));
  Schedules missing = handmade::tree(3, 1);
  missing[1].lanes[0].steps.erase(missing[1].lanes[0].steps.begin());
  EXPECT_THAT(error_of(missing), HasSubstr("Rank 0, lane 0 (channel 0), step 0 "
                                           "(recv_reduce_copy_send), repetition 0, window 0 waits "
                                           "for a message from rank 1"));
  Schedules circle = handmade::two_lane_tree(2);
  circle[0].lanes[0].steps.insert(circle[0].lanes[0].steps.begin(),
                                  Step{.ops = kWait, .tx = 1, .rx = 1});
  EXPECT_THAT(error_of(circle), HasSubstr("waits for step 1 of lane 1"));
}

/// One change to one good set of schedules, and a part of the expected error.
struct Fault {
  const char* says;
  handmade::Named good;
  std::function<void(Schedules&)> spoil;
};

Step& step(Schedules& schedules, int rank, int index, int lane = 0) {
  return schedules.at(static_cast<std::size_t>(rank))
      .lanes.at(static_cast<std::size_t>(lane))
      .steps.at(static_cast<std::size_t>(index));
}

std::vector<Fault> faults() {
  const auto named = [](const char* name, int n) {
    for (handmade::Named& each : handmade::all(n)) {
      if (each.name == std::string(name)) return std::move(each);
    }
    ADD_FAILURE() << name;
    return handmade::Named{};
  };
  return {
      // Errors of the schedule as a whole.
      {"made for rank 1 of 3", named("ring", 3), [](auto& s) { std::swap(s[0], s[1]); }},
      {"made for rank 0 of 4", named("ring", 3), [](auto& s) { s[0].nranks = 4; }},
      {"chunks_per_block = 3 and message_chunks = 2", named("ring", 3),
       [](auto& s) { s[1].message_chunks = 2; }},
      {"gives it 1 blocks of 3", named("ring", 3), [](auto& s) { s[2].input_chunks = 4; }},
      {"gives it 1 blocks of 3", named("ring", 3), [](auto& s) { s[2].output_chunks = 0; }},
      {"cannot hold chunk 2", named("one_shot", 3), [](auto& s) { s[2].scratch[1] = 2; }},
      {"share channel 0", named("two_lane_tree", 3), [](auto& s) { s[2].lanes[1].channel = 0; }},
      // Errors of one step.
      {"no legal set", named("ring", 3), [](auto& s) { step(s, 1, 1).ops = kRecv; }},
      {"no legal set", named("ring", 3), [](auto& s) { step(s, 1, 0).ops |= kFinal; }},
      {"repeat, count and fan", named("ring", 3), [](auto& s) { step(s, 1, 0).repeat = 0; }},
      {"more than message_chunks", named("ring", 3), [](auto& s) { step(s, 1, 0).count = 2; }},
      {"not at its default", named("ring", 3), [](auto& s) { step(s, 1, 0).stride = 1; }},
      {"writes into the input", named("ring", 3),
       [](auto& s) { step(s, 1, 2).dst = Buffer::kInput; }},
      {"there is no such buffer", named("ring", 3),
       [](auto& s) { step(s, 1, 0).src = static_cast<Buffer>(3); }},
      {"chunk 3 lies outside 3", named("ring", 3), [](auto& s) { step(s, 1, 0).chunk = 3; }},
      {"2 chunks from 3 on (repetition 1) lie outside 4", named("all_to_all", 4),
       [](auto& s) {
         for (auto& each : s) each.message_chunks = 2;
         step(s, 0, 1).chunk = 0;
         step(s, 0, 1).count = 2;
         step(s, 0, 1).repeat = 2;
         step(s, 0, 1).stride = 3;
       }},
      {"partners 1 to 2 of 2 do not exist", named("two_shot", 3),
       [](auto& s) { step(s, 1, 2).rx = 1; }},
      {"rank 7 cannot be a partner", named("ring", 3), [](auto& s) { s[0].lanes[0].peers[0] = 7; }},
      {"ascending order", named("two_shot", 3),
       [](auto& s) { std::swap(s[0].lanes[0].peers[0], s[0].lanes[0].peers[1]); }},
      {"lane 1 cannot be waited for", named("two_lane_tree", 3),
       [](auto& s) { step(s, 0, 0, 1).tx = 1; }},
      {"lane 0 has no step 1", named("two_lane_tree", 3), [](auto& s) { step(s, 0, 0, 1).rx = 1; }},
      {"a wait has other fields", named("two_lane_tree", 3),
       [](auto& s) { step(s, 0, 0, 1).count = 2; }},
      {"reduces nothing", named("all_to_all", 3), [](auto& s) { step(s, 0, 0).ops = kReduce; }},
      // Errors in the moved data.
      {"reads output chunk 0, which nothing was written to", named("ring", 3),
       [](auto& s) { step(s, 1, 0).src = Buffer::kOutput; }},
      {"reduces into output chunk 0, which nothing was written to", named("one_shot", 3),
       [](auto& s) { s[0].lanes[0].steps.erase(s[0].lanes[0].steps.begin() + 1); }},
      {"combines chunk", named("ring", 3), [](auto& s) { step(s, 1, 0).chunk ^= 1; }},
      {"which has the size of chunk 0", named("one_shot", 3), [](auto& s) { s[0].scratch[1] = 0; }},
      {"it counts a rank twice", named("one_shot", 3), [](auto& s) { step(s, 0, 5).chunk = 0; }},
      {"makes chunk 1 of ranks {0, 1, 2} and is not marked", named("ring", 3),
       [](auto& s) { step(s, 1, 2).ops &= static_cast<std::uint8_t>(~kFinal); }},
      {"is marked as final, but makes", named("ring", 3),
       [](auto& s) { step(s, 1, 1).ops |= kFinal; }},
      {"it expects 2 chunks, and rank 0 sent 1", named("two_lane_tree", 2),
       [](auto& s) { step(s, 0, 1, 1).count = 1; }},
      {"that no step receives", named("scatter", 3), [](auto& s) { s[0].lanes[0].steps.clear(); }},
      {"sent in window 0", named("all_to_all", 2), [](auto& s) { step(s, 0, 1).repeat = 2; }},
      {"reads output chunk 0, which nothing was written to", named("two_lane_tree", 3),
       [](auto& s) { s[0].lanes[1].steps.erase(s[0].lanes[1].steps.begin()); }},
      {"has nothing in the end, not chunk 2 of ranks {2}", named("scatter", 3),
       [](auto& s) { s[2].lanes[0].steps.erase(s[2].lanes[0].steps.begin()); }},
      {"has chunk 1 of ranks {2} in the end, not chunk 2 of ranks {2}", named("scatter", 3),
       [](auto& s) { step(s, 2, 0).chunk = 1; }},
  };
}

TEST(Verify, NamesTheFault) {
  int index = 0;
  for (Fault& fault : faults()) {
    EXPECT_EQ(error_of(fault.good.schedules, fault.good.spec), "");
    fault.spoil(fault.good.schedules);
    EXPECT_THAT(error_of(fault.good.schedules, fault.good.spec), HasSubstr(fault.says))
        << "fault " << index;
    ++index;
  }
}

TEST(Verify, ChecksTheSpec) {
  EXPECT_THAT(error_of({}), HasSubstr("no schedules"));
  EXPECT_THAT(error_of(handmade::scatter(3, 0), {Collective::kScatter, 3}), HasSubstr("no root 3"));
  EXPECT_THAT(error_of(handmade::scatter(3, 0), {Collective::kScatter, 1}), HasSubstr("blocks"));
  EXPECT_THAT(error_of(handmade::ring(3), {Collective::kSend}), HasSubstr("2 ranks, not 3"));
  EXPECT_THAT(error_of(handmade::all_to_all(3), {Collective::kAllToAll, 0, true}),
              HasSubstr("The collective alltoall cannot be in place."));
  EXPECT_THAT(error_of(handmade::one_shot(3), {Collective::kBroadcast}),
              HasSubstr("a broadcast reduces nothing"));
  EXPECT_EQ(error_of(handmade::ring(3), {Collective::kBarrier}), "");
}

/// Checks that, in place, a rank must not write its output before it has sent the input that lies
/// there.
TEST(Verify, InPlaceOverwritesAreFound) {
  const auto build = [](bool wait) {
    Schedules schedules;
    for (const int rank : {0, 1}) {
      ScheduleBuilder builder(2, rank, 1);
      builder.lane(0).peers(1 - rank, 1 - rank).send(0);
      LaneBuilder& lane = builder.lane(1).peers(1 - rank, 1 - rank);
      if (wait) lane.wait(0, 0);
      // This lane sends a copy, so that both ranks reduce here.
      lane.copy(0, 0);
      lane.send(0).recv_reduce_copy(0, 0).final();
      builder.lane(2).peers(1 - rank, 1 - rank);
      schedules.push_back(std::move(builder).build());
    }
    for (Schedule& schedule : schedules) {
      // Messages of lane 0 are received into scratch.
      schedule.scratch = {0};
      schedule.lanes[0].steps.push_back({.ops = kRecv | kCopy, .dst = Buffer::kScratch});
    }
    return schedules;
  };
  EXPECT_EQ(error_of(build(false)), "");
  EXPECT_THAT(error_of(build(false), {.in_place = true}), HasSubstr("no wait orders the two"));
  EXPECT_EQ(error_of(build(true), {.in_place = true}), "");
}

/// Checks ranks that both overwrite what they have sent before they receive: right with a copy in a
/// slot; a deadlock if the receiver reads the sender's memory.
TEST(Verify, PublishedSourcesAreNotOverwrittenBeforeTheRelease) {
  Schedules schedules;
  for (const int rank : {0, 1}) {
    ScheduleBuilder builder(2, rank, 1);
    builder.scratch({0});
    builder.lane(0)
        .peers(1 - rank, 1 - rank)
        .write(Buffer::kScratch)
        .copy(0, 0)
        .read(Buffer::kScratch)
        .send(0)
        .read(Buffer::kInput)
        .copy(0, 0)
        .write(Buffer::kOutput)
        .recv_reduce_copy(0, 0)
        .final();
    schedules.push_back(std::move(builder).build());
  }
  EXPECT_EQ(error_of(schedules), "");
  EXPECT_THAT(error_of(schedules, {}, {.published = true}),
              HasSubstr("waits until what it overwrites has been received"));
}

/// Checks rank 0's copy of its input, in place where the result is placed: if rank 0 sends first,
/// rank 1 may have finished before the copy is made.
TEST(Verify, APlacedResultIsNotWrittenBeforeTheLastLocalUse) {
  const auto build = [](bool copy_first) {
    Schedules schedules;
    ScheduleBuilder first(2, 0, 1), second(2, 1, 1);
    first.scratch({0});
    LaneBuilder& lane = first.lane(0).peers(1, 1);
    if (copy_first) lane.write(Buffer::kScratch).copy(0, 0);
    lane.send(0);
    if (!copy_first) lane.write(Buffer::kScratch).copy(0, 0);
    lane.write(Buffer::kOutput).recv_copy(0);
    second.lane(0).peers(0, 0).recv_reduce_copy_send(0, 0).final();
    schedules.push_back(std::move(first).build());
    schedules.push_back(std::move(second).build());
    return schedules;
  };
  EXPECT_EQ(error_of(build(false), {.in_place = true}), "");
  EXPECT_EQ(error_of(build(false), {}, {.placed = true}), "");
  EXPECT_THAT(error_of(build(false), {.in_place = true}, {.placed = true}),
              HasSubstr("nothing orders the two"));
  EXPECT_EQ(error_of(build(true), {.in_place = true}, {.placed = true}), "");
}

/// Checks that rank 1 places its result in rank 0's published input only after rank 2 has read it:
/// unless rank 2 answers first, rank 2 may still be reading.
TEST(Verify, APlacedResultIsNotWrittenWhileAnotherRankReadsThere) {
  const auto build = [](bool reads_first) {
    Schedules schedules;
    ScheduleBuilder first(3, 0, 1), second(3, 1, 1), third(3, 2, 1);
    third.scratch({0});
    first.lane(0).peers(2, 1).send(0).peers(1, 1).send(0).recv_copy(0);
    second.lane(0).peers(std::array{0, 2}, std::array{0, 2}).recv_reduce_copy_send(0, 0).final();
    LaneBuilder& lane = third.lane(0);
    if (!reads_first) lane.peers(1, 0).send(0);
    lane.peers(1, 0).write(Buffer::kScratch).recv_copy(0).write(Buffer::kOutput);
    if (reads_first) lane.peers(1, 0).send(0);
    lane.peers(1, 1).recv_copy(0);
    for (ScheduleBuilder* const each : {&first, &second, &third}) {
      schedules.push_back(std::move(*each).build());
    }
    return schedules;
  };
  const VerifyOptions both{.published = true, .placed = true};
  EXPECT_EQ(error_of(build(false), {.in_place = true}, {.published = true}), "");
  EXPECT_EQ(error_of(build(false), {.in_place = true}, {.placed = true}), "");
  EXPECT_EQ(error_of(build(false), {}, both), "");
  EXPECT_THAT(error_of(build(false), {.in_place = true}, both), HasSubstr("nothing"));
  EXPECT_EQ(error_of(build(true), {.in_place = true}, both), "");
}

TEST(Verify, ATransferIsAScheduleOfTwoRanks) {
  Schedules schedules;
  for (const int rank : {0, 1}) {
    ScheduleBuilder builder(2, rank, 2);
    builder.blocks(rank == 1 ? 1 : 0, rank == 1 ? 0 : 1);
    LaneBuilder& lane = builder.lane(3).peers(1 - rank, 1 - rank);
    (rank == 1 ? lane.send(0) : lane.recv_copy(0)).repeat(2, 1);
    schedules.push_back(std::move(builder).build());
  }
  EXPECT_EQ(error_of(schedules, {Collective::kSend, 1}), "");
  EXPECT_EQ(error_of(schedules, {Collective::kRecv, 1}), "");
  EXPECT_THAT(error_of(schedules, {Collective::kSend, 0}), HasSubstr("gives it 1 blocks of 2"));
}

TEST(Verify, ScratchOfTheNextWindowIsOrderedByTheLane) {
  // Two lanes share a scratch chunk; lane 1 reads it in window 0 while lane 0 writes it in window
  // 1.
  Schedules schedules;
  ScheduleBuilder builder(1, 0, 1);
  builder.scratch({0});
  builder.lane(0).write(Buffer::kScratch).copy(0, 0);
  builder.lane(1).wait(0, 0).read(Buffer::kScratch).copy(0, 0);
  schedules.push_back(std::move(builder).build());
  EXPECT_EQ(error_of(schedules, {}, {.windows = 1}), "");
  EXPECT_THAT(error_of(schedules), HasSubstr("no wait orders the two"));
}

TEST(Verify, ManyRanks) {
  const auto ring = verify(handmade::ring(300), {}, {.windows = 1});
  ASSERT_TRUE(ring.ok()) << ring.status().message();
  EXPECT_EQ(ring->rounds, 2 * 299);
  const auto tree = verify(handmade::tree(1024, 3), {});
  ASSERT_TRUE(tree.ok()) << tree.status().message();
  EXPECT_EQ(tree->rounds, 20);
}

} // namespace
} // namespace whorl
