// Tests of the proof that WHORL_VERIFY=1 demands before a schedule is used.
#include "engine/prove.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace whorl {
namespace {

using ::testing::HasSubstr;

const Shape kShape{.nranks = 4};
const VerifyOptions kCopied[] = {{}};

const Algorithm& ring() { return *find_algorithm(Collective::kAllReduce, "ring"); }

TEST(Prove, AcceptsWhatTheCommunicatorHasSlotsFor) {
  EXPECT_TRUE(prove(ring(), kShape, build_all(ring(), kShape), kCopied, 2).ok());
}

TEST(Prove, RefusesWhatNeedsMoreSlots) {
  const Status status = prove(ring(), kShape, build_all(ring(), kShape), kCopied, 1);
  EXPECT_EQ(status.code(), Code::kInvalidUsage);
  EXPECT_THAT(status.message(), HasSubstr("ring of allreduce for 4 ranks needs FIFOs of 2 slots, "
                                          "and the communicator has 1; raise WHORL_SLOTS"));
}

TEST(Prove, RefusesWhatIsWrong) {
  std::vector<Schedule> schedules = build_all(ring(), kShape);
  schedules[1].lanes[0].steps.pop_back();
  const Status status = prove(ring(), kShape, schedules, kCopied, 2);
  EXPECT_THAT(status.message(), HasSubstr("the schedule ring of allreduce for 4 ranks is wrong"));
}

} // namespace
} // namespace whorl
