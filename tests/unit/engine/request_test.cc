// Tests of the words for calls and for their differences.
#include "engine/request.h"

#include <gtest/gtest.h>

namespace whorl {
namespace {

CallOfRank call_of(const char* rank, const Request& request) {
  return {rank, describe(request), fingerprint_of(request, 0, 0)};
}

TEST(DescribeDisagreement, NamesRanksCallsAndFields) {
  const Request here{
      .collective = Collective::kBroadcast, .type = DataType::kInt32, .peer = 1, .count = 4};
  Request there = here;
  there.peer = 2;
  there.count = 5;
  EXPECT_EQ(describe_disagreement(call_of("rank 0", here), call_of("rank 3", there)),
            "ranks disagree on an operation: rank 0 calls broadcast of 4 int32 from root 1, rank 3 "
            "calls broadcast of 5 int32 from root 2; they differ in count (4 here, 5 there), root "
            "(1 here, 2 there). All ranks must make the same calls in the same order");
}

TEST(DescribeDisagreement, NumbersCallsThatAreKnownFromMessages) {
  const Request request{.collective = Collective::kBarrier};
  const Fingerprint here = fingerprint_of(request, 7, 0), there = fingerprint_of(request, 8, 0);
  const std::string text =
      describe_disagreement({"rank 0", describe(here), here}, {"rank 1", describe(there), there});
  EXPECT_NE(text.find("rank 0 calls barrier number 7, rank 1 calls barrier number 8; they differ "
                      "in operation number (7 here, 8 there)"),
            std::string::npos)
      << text;
}

} // namespace
} // namespace whorl
