// Tests of how ranks are placed on processing units.
#include "comm/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace whorl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Makes a communicator on one machine whose ranks may use the processing units of each set.
Membership bound_to(const std::vector<std::vector<unsigned>>& cpus) {
  Membership members;
  members.nranks = static_cast<int>(cpus.size());
  members.peers.resize(cpus.size());
  for (std::size_t rank = 0; rank < cpus.size(); ++rank) {
    std::string("node7").copy(members.peers[rank].host_name.data(), 8);
    for (const unsigned cpu : cpus[rank]) {
      members.peers[rank].place.cpus[cpu / 64] |= std::uint64_t{1} << (cpu % 64);
    }
  }
  return members;
}

TEST(PlacementWarnings, NameRanksThatShareProcessorsWhileOthersAreFree) {
  const auto warnings = placement_warnings(bound_to({{0}, {70}, {0}, {1}, {0}}), 0, 128);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(
      warnings[0],
      HasSubstr("ranks 0, 2 and 4 (host node7) share processor 0, while no rank may use 125 "
                "of the 128 processors"));
  EXPECT_THAT(warnings[0], HasSubstr("mpirun --bind-to core"));
  const auto two = placement_warnings(bound_to({{0, 1, 4}, {0, 1, 4}, {0, 1, 4}, {0, 1, 4}}), 2, 8);
  ASSERT_EQ(two.size(), 1U);
  EXPECT_THAT(two[0], HasSubstr("share processors 0-1,4"));
}

TEST(PlacementWarnings, AreSilentWhereNothingIsWrong) {
  EXPECT_THAT(placement_warnings(bound_to({{0}, {1}}), 0, 4), IsEmpty());
  EXPECT_THAT(placement_warnings(bound_to({{0, 1}, {0, 1}}), 0, 4), IsEmpty()) << "enough for both";
  EXPECT_THAT(placement_warnings(bound_to({{0}, {1}, {0}, {1}}), 0, 2), IsEmpty())
      << "nothing is free";
  EXPECT_THAT(placement_warnings(bound_to({{0}, {0}, {0, 1, 2, 3}}), 0, 4), IsEmpty())
      << "others may be used";
  EXPECT_THAT(placement_warnings(bound_to({{}, {0}, {0}}), 0, 4), IsEmpty())
      << "a place is unknown";
}

TEST(FirstProcessor, SpreadsRanksThatMayUseTheSame) {
  const auto first = [](Membership members) {
    std::vector<std::optional<unsigned>> units;
    for (int rank = 0; rank < members.nranks; ++rank) {
      members.peers[static_cast<std::size_t>(rank)].process_key = static_cast<std::uint64_t>(rank);
    }
    for (int rank = 0; rank < members.nranks; ++rank)
      units.push_back(first_processor(members, rank));
    return units;
  };
  using Units = std::vector<std::optional<unsigned>>;
  EXPECT_EQ(first(bound_to({{2, 70}, {2, 70}, {2, 70}, {2, 70}})), (Units{2, 70, 2, 70}));
  EXPECT_EQ(first(bound_to({{0, 1}, {4, 5}, {0, 1}, {4, 5}})), (Units{0, 4, 1, 5}));
  EXPECT_EQ(first(bound_to({{0, 1, 2}, {0, 1, 2}, {5}})), (Units{{}, {}, {}}))
      << "fewer than processing units, and bound to one";
  EXPECT_EQ(first(bound_to({{}, {}})), (Units{{}, {}})) << "unknown places";
  Membership threads = bound_to({{0, 1}, {0, 1}});
  EXPECT_EQ(first_processor(threads, 0), std::nullopt) << "ranks of one process";
}

TEST(RanksPerProcessor, CountsThoseThatMayUseNoOther) {
  const Membership members = bound_to({{0}, {0}, {0, 1, 2}, {3, 4}, {3, 4}, {3}, {}});
  EXPECT_EQ(ranks_per_processor(members, 0), 2);
  EXPECT_EQ(ranks_per_processor(members, 2), 1);
  EXPECT_EQ(ranks_per_processor(members, 3), 1.5);
  EXPECT_EQ(ranks_per_processor(members, 5), 1);
  EXPECT_EQ(ranks_per_processor(members, 6), 1) << "its place is unknown";
}

TEST(HasSpareProcessor, CountsThoseThatMayUseNoOther) {
  const Membership members = bound_to({{0}, {0}, {0, 1, 2}, {3, 4}, {3, 4}, {5, 6}, {}});
  EXPECT_FALSE(has_spare_processor(members, 0));
  EXPECT_FALSE(has_spare_processor(members, 3));
  EXPECT_TRUE(has_spare_processor(members, 5));
  EXPECT_TRUE(has_spare_processor(members, 6)) << "its place is unknown";
}

TEST(PlacementWarnings, NameRanksThatAreAllFarFromTheNic) {
  Membership members = bound_to({{0}, {1}, {2}});
  for (PeerInfo& info : members.peers) {
    info.place.numa = 0;
    info.place.nic_numa = 1;
  }
  EXPECT_THAT(placement_warnings(members, 0, 8), IsEmpty()) << "one host needs no NIC";
  members.peers[2].machine_key = members.peers[2].host_key = 2;
  const auto warnings = placement_warnings(members, 0, 8);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(
      warnings[0],
      HasSubstr("ranks 0 and 1 (host node7) are bound far from the NIC, which is at NUMA node 1"));
  EXPECT_THAT(placement_warnings(members, 2, 8)[0], HasSubstr("rank 2 (host node7) is bound far"));
  members.peers[1].place.numa = 1;
  EXPECT_THAT(placement_warnings(members, 0, 8), IsEmpty());
}

TEST(WarnOfPlaces, JudgesTheFirstCommunicatorOfAProcess) {
  Membership bad = bound_to({{0}, {0}});
  const auto logged = [&](std::byte job, int rank) {
    bad.identity.job = {job};
    bad.rank = rank;
    ::testing::internal::CaptureStderr();
    warn_of_places(bad);
    return ::testing::internal::GetCapturedStderr();
  };
  Membership alone = bound_to({{0}});
  alone.identity.job = {std::byte{9}};
  warn_of_places(alone); // does not count
  const bool possible =
      !placement_warnings(bad, 0, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))).empty();
  EXPECT_THAT(logged(std::byte{1}, 1), IsEmpty()) << "the first rank of the machine speaks";
  EXPECT_EQ(logged(std::byte{1}, 0).find("share processor 0") != std::string::npos, possible);
  EXPECT_THAT(logged(std::byte{2}, 0), IsEmpty()) << "a later communicator";
}

} // namespace
} // namespace whorl
