// Tests of the words that name a collective.
#include "base/collective_name.h"

#include <gtest/gtest.h>

namespace whorl {
namespace {

TEST(CollectiveName, IsItsOwnName) {
  for (int c = 0; c < kNumCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    EXPECT_EQ(find_collective(name_of(collective)), collective);
  }
}

TEST(CollectiveName, MayHaveUnderscores) {
  EXPECT_EQ(find_collective("all_reduce"), Collective::kAllReduce);
  EXPECT_EQ(find_collective("all_gather"), Collective::kAllGather);
  EXPECT_EQ(find_collective("reduce_scatter"), Collective::kReduceScatter);
  EXPECT_EQ(find_collective("all_to_all"), Collective::kAllToAll);
}

TEST(CollectiveName, IsNoOtherWord) {
  for (const char* const word :
       {"", "_", "all", "reduced", "allreduces", "AllReduce", "all-reduce", "reducesc"}) {
    EXPECT_FALSE(find_collective(word)) << word;
  }
}

} // namespace
} // namespace whorl
