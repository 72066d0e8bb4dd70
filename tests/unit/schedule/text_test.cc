#include "schedule/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "schedule/json.h"
#include "unit/schedule/handmade.h"

namespace whorl {
namespace {

using ::testing::HasSubstr;

TEST(Text, RingOfThree) {
  EXPECT_EQ(to_text(handmade::ring(3)[0]),
            "schedule rank=0/3 chunks_per_block=3 input=3 output=3 message_chunks=1 min_slots=1\n"
            "lane channel=0 peers=1,2\n"
            "  send i2 >1\n"
            "  recv_reduce_send <2 i1 >1\n"
            "  recv_reduce_copy_send <2 i0 -> o0 >1 final\n"
            "  recv_copy_send <2 -> o2 >1\n"
            "  recv_copy <2 -> o1\n");
  EXPECT_EQ(to_text(handmade::ring(5)[4].lanes[0], handmade::ring(5)[4].lanes[0].steps[1]),
            "recv_reduce_send <3 i2 >0 x3 by -1");
}

TEST(Text, FanCountScratchAndWait) {
  EXPECT_EQ(to_text(handmade::two_lane_tree(3)[0]),
            "schedule rank=0/3 chunks_per_block=2 input=2 output=2 message_chunks=2 min_slots=1\n"
            "lane channel=0 peers=1,2\n"
            "  recv_reduce_copy <1,2 i0..1 -> o0..1 final\n"
            "lane channel=1 peers=1,2\n"
            "  wait lane 0 step 0\n"
            "  send o0..1 >1,2\n");
  EXPECT_EQ(to_text(handmade::one_shot(3)[2]),
            "schedule rank=2/3 chunks_per_block=2 input=2 output=2 message_chunks=2 min_slots=1 "
            "scratch=0,1,0,1\n"
            "lane channel=0 peers=0,1\n"
            "  send i0 >0,1 x2 by 1\n"
            "  copy i0..1 -> o0..1\n"
            "  recv_copy <0 -> s0 x2 by 1\n"
            "  recv_copy <1 -> s2 x2 by 1\n"
            "  reduce s0..1 -> o0..1\n"
            "  reduce s2..3 -> o0..1 final\n");
}

TEST(Text, PartnersThatAreNotTheFirstOfTheirRanks) {
  Lane lane{.channel = 0, .peers = {1, 2, 1, 3}, .steps = {}};
  EXPECT_EQ(to_text(lane, {.ops = kSend, .fan = 2, .tx = 2}), "send i0 >1,3");
  EXPECT_EQ(to_text(lane, {.ops = kSend, .tx = 2}), "send i0 >#2+1");
  EXPECT_EQ(to_text(lane, {.ops = kSend, .fan = 9, .tx = 3}), "send i0 >#3+9");
}

TEST(Text, RoundTrips) {
  for (const int n : {2, 3, 4, 9}) {
    for (const handmade::Named& named : handmade::all(n)) {
      const auto from_text = schedules_from_text(to_text(named.schedules));
      ASSERT_TRUE(from_text.ok()) << named.name << ": " << from_text.status().message();
      EXPECT_EQ(*from_text, named.schedules) << named.name << " of " << n;
      const auto from_json = schedules_from_json(to_json(named.schedules));
      ASSERT_TRUE(from_json.ok()) << named.name << ": " << from_json.status().message();
      EXPECT_EQ(*from_json, named.schedules) << named.name << " of " << n;
    }
  }
}

TEST(Text, CommentsAndSpacesDoNotMatter) {
  const auto read = schedules_from_text(
      "; a transfer\n\nschedule rank=0/2 input=1\r\n\tlane channel=3 peers=1 ; up\nsend  i0\t>1 "
      "x2   by -7");
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->size(), 1u);
  EXPECT_EQ((*read)[0].lanes[0].channel, 3);
  EXPECT_EQ((*read)[0].lanes[0].steps[0], (Step{.ops = kSend, .stride = -7, .repeat = 2}));
}

TEST(Text, ErrorsNameLineAndField) {
  const std::string head = "schedule rank=0/3 input=4 output=4\nlane channel=0 peers=1,2\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"lane channel=0", "Line 1, schedule: expected first"},
      {"schedule rank=0/3\nsend i0 >1", "Line 2, lane: expected before"},
      {"schedule rank=0", "Line 1, rank: the number of ranks is missing"},
      {"schedule rank=-1/3", "Line 1, rank: there is no number from 0"},
      {"schedule rank=0/3 input=65536", "Line 1, input: there is no number from 0 to 65535"},
      {"schedule rank=0/3 colour=1", "Line 1, schedule: there is no field \"colour=1\""},
      {"schedule rank=0/3x", "Line 1, schedule: \"x\" does not belong there"},
      {"schedule rank=0/3\nlane peers=1,", "Line 2, peers: there is no number"},
      {head + "fetch i0 >1", "Line 3, operations: there is no \"fetch\""},
      {head + "send_recv i0 >1", "Line 3, operations"},
      {head + "send i0", "Line 3, >: the ranks to send to are missing"},
      {head + "send i0 >7", "Line 3, >: 7 are no consecutive peers"},
      {head + "send q0 >1", "Line 3, source: \"q0\" is no chunk"},
      {head + "send", "Line 3, source: \"\" is no chunk"},
      {head + "send i3..2 >1", "Line 3, source: there is no number from 3"},
      {head + "copy i0..1 -> o0", "Line 3, target: has 1 chunks, the source 2"},
      {head + "copy i0 o0", "Line 3, ->: expected here"},
      {head + "recv_copy -> o0", "Line 3, <: the ranks to receive from are missing"},
      {head + "send i0 >1 x0 by 1", "Line 3, repeat: there is no number from 1"},
      {head + "send i0 >1 x2", "Line 3, by: expected here"},
      {head + "send i0 >1 x2 by 32768", "Line 3, stride"},
      {head + "send i0 >1 twice", "Line 3, step: \"twice\" does not belong there"},
      {head + "wait lane 0 step 256", "Line 3, step: there is no number from 0 to 255"},
      {head + "wait 0 1", "Line 3, lane: expected here"},
  };
  for (const auto& [text, says] : cases) {
    const auto read = schedules_from_text(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_THAT(read.status().message(), HasSubstr(says)) << text;
    EXPECT_EQ(read.status().code(), Code::kInvalidArgument);
  }
}

TEST(Json, ErrorsNameThePlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "no valid JSON"},
      {"[{]", "no valid JSON"},
      {"{}", "not an array"},
      {"[1]", "\"/0\" is not an object"},
      {R"([{"rank": "x"}])", "\"/0/rank\" is no whole number"},
      {R"([{"rank": 1.5}])", "\"/0/rank\" is no whole number"},
      {R"([{"min_slots": 256}])", "\"/0/min_slots\" is no whole number from 0 to 255"},
      {R"([{"scratch": [0, -1]}])", "\"/0/scratch\" is no whole number"},
      {R"([{"scratch": 3}])", "\"/0/scratch\" is not an array"},
      {R"([{"colour": 3}])", "\"/0\" has a field of an unknown name"},
      {R"([{}, {"lanes": [{"steps": [{"ops": "fly"}]}]}])", "\"/1/lanes/0/steps/0/ops\""},
      {R"([{"lanes": [{"steps": [{}]}]}])", "\"/0/lanes/0/steps/0/ops\""},
      {R"([{"lanes": [{"steps": [{"ops": "send", "src": "there"}]}]}])", "src\" is no buffer"},
      {R"([{"lanes": [{"steps": [{"ops": "send", "final": 1}]}]}])", "final\" is neither"},
      {R"([{"lanes": [{"steps": [{"ops": "send", "stride": -32769}]}]}])", "stride\" is no whole"},
      {R"([{"lanes": [[]]}])", "\"/0/lanes/0\" is not an object"},
  };
  for (const auto& [text, says] : cases) {
    const auto read = schedules_from_json(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_THAT(read.status().message(), HasSubstr(says)) << text;
  }
}

/// Checks that damaged text is read or refused, without other effects: every prefix, and every byte
/// replaced in turn.
TEST(Text, DamagedTextIsHarmless) {
  const std::string text = to_text(handmade::two_lane_tree(3));
  const std::string json = to_json(std::span<const Schedule>(handmade::ring(2)).first(1));
  int refused = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!schedules_from_text(text.substr(0, i)).ok()) ++refused;
    for (const char c : {'\0', '9', '-', ',', '>', '\n', 'x', '\xff'}) {
      std::string damaged = text;
      damaged[i] = c;
      if (!schedules_from_text(damaged).ok()) ++refused;
    }
  }
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (!schedules_from_json(json.substr(0, i)).ok()) ++refused;
    for (const char c : {'\0', '9', '-', '"', '{', ']', '\xff'}) {
      std::string damaged = json;
      damaged[i] = c;
      if (!schedules_from_json(damaged).ok()) ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

} // namespace
} // namespace whorl
