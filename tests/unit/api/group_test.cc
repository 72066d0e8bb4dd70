// Groups of calls: what becomes of errors, in which handles they are kept.
#include "api/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "tests/support/thread_world.h"

namespace whorl {
namespace {

using test::failure;
using test::ThreadWorld;
using ::testing::HasSubstr;

constexpr int kRanks = 2;

std::string sum(int& value, whorlComm_t comm, whorlStream_t stream = nullptr) {
  return failure(whorlAllReduce(&value, &value, 1, whorlInt32, whorlSum, comm, stream));
}

TEST(Group, KeepsEachErrorInItsHandle) {
  ThreadWorld good(kRanks), bad(kRanks), other(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    bad.comm(rank)->communicator->abort(Status::error(Code::kRemoteError, "aborted by the test"));
  }
  good.each([&](int rank, whorlComm_t comm) -> std::string {
    whorlStream_t stream = nullptr;
    EXPECT_EQ(whorlStreamCreate(&stream), whorlSuccess);
    std::array<int, 3> values{1, 10, 100};
    EXPECT_EQ(whorlGroupStart(), whorlSuccess);
    EXPECT_EQ(sum(values[0], comm), "");
    EXPECT_EQ(sum(values[1], bad.comm(rank)), "");
    EXPECT_EQ(sum(values[2], other.comm(rank), stream), "");
    EXPECT_EQ(whorlGroupEnd(), whorlRemoteError);
    EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr("aborted by the test"));
    EXPECT_TRUE(comm->error().ok());
    EXPECT_THAT(bad.comm(rank)->error().message(), HasSubstr("aborted by the test"));
    EXPECT_TRUE(other.comm(rank)->error().ok());
    EXPECT_EQ(whorlStreamSynchronize(stream), whorlSuccess);
    EXPECT_EQ(values, (std::array{2, 10, 200}));
    EXPECT_EQ(whorlStreamDestroy(stream), whorlSuccess);
    return {};
  });
}

TEST(Group, RefusesCallsOnAHandleThatHasEnded) {
  ThreadWorld world(kRanks);
  int value = 1;
  const Request request{.collective = Collective::kAllReduce,
                        .type = DataType::kInt32,
                        .count = 1,
                        .send = &value,
                        .recv = &value};
  whorlComm* const ended = nullptr;
  for (const bool alone : {true, false}) {
    std::vector<Call> calls{{.handle = ended, .request = request, .stream = nullptr}};
    if (!alone) calls.push_back({.handle = world.comm(0), .request = request, .stream = nullptr});
    const Status status = issue(calls);
    EXPECT_EQ(status.code(), Code::kInvalidUsage);
    EXPECT_THAT(status.message(), HasSubstr("another thread ended a communicator"));
  }
  EXPECT_EQ(value, 1);
}

// Checks that faults in the transfers of one communicator are found before anything is issued.
TEST(Group, IssuesNothingIfATransferIsWrong) {
  ThreadWorld first(kRanks), second(kRanks);
  first.each([&](int rank, whorlComm_t comm) -> std::string {
    int value = 1;
    EXPECT_EQ(whorlGroupStart(), whorlSuccess);
    EXPECT_EQ(sum(value, comm), "");
    EXPECT_EQ(whorlSend(&value, 1, whorlInt32, rank, second.comm(rank), nullptr), whorlSuccess);
    EXPECT_EQ(whorlGroupEnd(), whorlInvalidUsage);
    EXPECT_EQ(value, 1);
    EXPECT_TRUE(second.comm(rank)->error().ok()) << "no error of the communicator";
    return sum(value, comm);
  });
}

} // namespace
} // namespace whorl
