// Tests of the errors made from the reports of kernels that stopped early.
#include "device/common/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace whorl {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kNames{"rank 0", "rank 1", "rank 2", "rank 3"};

gpu::Report waiting_for(std::uint32_t peer, bool expired) {
  Request request;
  request.collective = Collective::kBroadcast;
  request.type = DataType::kInt64;
  request.peer = 3;
  gpu::Report report{};
  report.state = 1;
  report.expired = expired ? 1 : 0;
  report.peer = peer;
  report.step = 5;
  report.operation = report_tag(request);
  report.count = 80; // bytes, since the operation combines nothing
  report.timeout_ns = expired ? 1'500'000'000 : 0;
  return report;
}

TEST(DeviceReport, NobodysTimeHasRunOut) {
  EXPECT_TRUE(error_of(std::vector<gpu::Report>(4), kNames).ok());
  EXPECT_TRUE(error_of(std::vector{waiting_for(1, false), gpu::Report{}}, kNames).ok());
}

TEST(DeviceReport, NamesTheRankThatDidNotWait) {
  const std::vector reports{waiting_for(3, true), waiting_for(2, false), gpu::Report{},
                            waiting_for(1, false)};
  const Status error = error_of(reports, kNames);
  EXPECT_EQ(error.code(), Code::kRemoteError);
  EXPECT_THAT(
      std::string(error.message()),
      HasSubstr("timeout of 1.5 s. rank 1 in broadcast of 10 int64 from root 3: waiting for "
                "rank 2 while receiving on the device (lane 0, step 5, window 0)"));
}

TEST(DeviceReport, RanksThatWaitInACircle) {
  const std::vector reports{waiting_for(1, true), waiting_for(0, true)};
  EXPECT_THAT(std::string(error_of(reports, kNames).message()), HasSubstr("waiting for rank"));
}

TEST(DeviceReport, AndForALaneOfTheirOwn) {
  gpu::Report report = waiting_for(0, true);
  report.phase = static_cast<std::uint32_t>(gpu::WaitPhase::kLane);
  EXPECT_THAT(std::string(error_of(std::vector{report}, kNames).message()),
              HasSubstr("waiting for another lane of its own"));
}

} // namespace
} // namespace whorl
