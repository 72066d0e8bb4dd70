// Tests of collectives whose blocks have different sizes, against the expected elements.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/support/thread_world.h"
#include "tests/support/uneven_blocks.h"

namespace whorl::test {
namespace {

class Blocks : public ::testing::TestWithParam<int> {};

TEST_P(Blocks, AllToAllOfRandomSizes) {
  const int n = GetParam();
  ThreadWorld world(n);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    for (unsigned seed = 1; seed <= 6; ++seed) {
      const std::size_t largest = seed == 6 ? 300'000 : 1000;
      AllToAllv exchange(random_matrix(n, seed, largest), rank, seed % 2);
      if (std::string f = failure(exchange.run(comm), comm); !f.empty()) return f;
      if (std::string f = exchange.check(); !f.empty()) return f;
    }
    return {};
  });
}

TEST_P(Blocks, GathersAndScatters) {
  const int n = GetParam();
  ThreadWorld world(n);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    for (unsigned seed = 1; seed <= 4; ++seed) {
      const Counts counts = random_matrix(n, seed, seed == 4 ? 200'000 : 500)[0];
      for (const bool in_place : {false, true}) {
        AllGatherv all(counts, rank, seed % 2, in_place);
        if (std::string f = failure(all.gather_all(comm), comm); !f.empty()) return f;
        if (std::string f = all.check(); !f.empty()) return f;

        const int root = static_cast<int>(seed) % n;
        AllGatherv at_root(counts, rank, seed % 2, in_place && rank == root);
        if (std::string f = failure(at_root.gather(root, comm), comm); !f.empty()) return f;
        if (rank == root && !at_root.check().empty()) return at_root.check();

        // The gathered blocks go back, in place on the root.
        const auto own = static_cast<std::size_t>(rank);
        std::vector<int> back(counts[own], kGuard);
        int* const here =
            in_place && rank == root ? at_root.recv.data() + at_root.at[own] : back.data();
        if (std::string f = failure(whorlScatterv(rank == root ? at_root.recv.data() : nullptr,
                                                  rank == root ? counts.data() : nullptr,
                                                  rank == root ? at_root.at.data() : nullptr, here,
                                                  counts[own], whorlInt32, root, comm, nullptr),
                                    comm);
            !f.empty()) {
          return f;
        }
        if (!std::equal(at_root.send.begin(), at_root.send.end(), here)) return "wrong scatter-v";
      }
    }
    return {};
  });
}

TEST_P(Blocks, ReduceScatters) {
  const int n = GetParam();
  ThreadWorld world(n);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    for (unsigned seed = 1; seed <= 5; ++seed) {
      Counts counts = random_matrix(n, seed, seed == 4 ? 100'000 : 300)[0];
      if (seed == 5) std::fill(counts.begin(), counts.end(), std::size_t{33});
      const auto own = static_cast<std::size_t>(rank);
      const Counts at = displacements(counts, 0);
      for (const bool in_place : {false, true}) {
        std::vector<std::int64_t> in(total(counts, 0)), out(counts[own] + 2, kGuard);
        for (std::size_t i = 0; i < in.size(); ++i) {
          in[i] = static_cast<std::int64_t>(i) * (rank + 1);
        }
        std::int64_t* const result = in_place ? in.data() + at[own] : out.data() + 1;
        if (std::string f = failure(whorlReduceScatterv(in.data(), result, counts.data(),
                                                        whorlInt64, whorlSum, comm, nullptr),
                                    comm);
            !f.empty()) {
          return f;
        }
        for (std::size_t i = 0; i < counts[own]; ++i) {
          if (result[i] != static_cast<std::int64_t>(at[own] + i) * n * (n + 1) / 2) {
            return "wrong sum at " + std::to_string(i);
          }
        }
        if (!in_place && (out.front() != kGuard || out.back() != kGuard)) return "guards changed";
      }
    }
    return {};
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Blocks, ::testing::Values(1, 2, 3, 4, 7));

TEST(BlocksOfOthers, PremultipliedSumsAndAverages) {
  ThreadWorld world(3);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    const Counts counts{2, 0, 5};
    const std::vector<float> in(7, 2.0F);
    std::vector<float> out(5, -1.0F);
    const float factor = static_cast<float>(rank + 1);
    whorlRedOp_t op;
    if (std::string f =
            failure(whorlRedOpCreatePreMulSum(&op, const_cast<float*>(&factor), whorlFloat32,
                                              whorlScalarHostImmediate, comm),
                    comm);
        !f.empty()) {
      return f;
    }
    if (static_cast<int>(op) < WHORL_FIRST_USER_OP) return "a number of a built-in operator";
    for (const auto& [which, value] : {std::pair{op, 12.0F}, std::pair{whorlAvg, 2.0F}}) {
      if (std::string f = failure(whorlReduceScatterv(in.data(), out.data(), counts.data(),
                                                      whorlFloat32, which, comm, nullptr),
                                  comm);
          !f.empty()) {
        return f;
      }
      for (std::size_t i = 0; i < counts[static_cast<std::size_t>(rank)]; ++i) {
        if (out[i] != value) return "got " + std::to_string(out[i]);
      }
    }
    return failure(whorlRedOpDestroy(op, comm), comm);
  });
}

TEST(BlocksOfOthers, InGroupsAndOnStreamsBesideEverythingElse) {
  constexpr int kRanks = 4;
  ThreadWorld world(kRanks);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    whorlStream_t stream = nullptr;
    if (std::string f = failure(whorlStreamCreate(&stream)); !f.empty()) return f;
    const int next = (rank + 1) % kRanks, previous = (rank + kRanks - 1) % kRanks;
    for (void* const on : {static_cast<void*>(nullptr), static_cast<void*>(stream)}) {
      AllToAllv first(random_matrix(kRanks, 11, 5000), rank, 1);
      AllToAllv second(random_matrix(kRanks, 12, 5000), rank, 0);
      const std::vector<int> ones(1000, 1);
      std::vector<int> sum(1000), theirs(1000);
      const Counts counts{1, 0, 300, 7};
      std::vector<int> out(300);
      std::vector<int> in(308, rank);
      if (whorlGroupStart() != whorlSuccess) return "no group";
      static_cast<void>(whorlSend(ones.data(), 1000, whorlInt32, next, comm, on));
      static_cast<void>(first.run(comm, on));
      static_cast<void>(
          whorlAllReduce(ones.data(), sum.data(), 1000, whorlInt32, whorlSum, comm, on));
      static_cast<void>(whorlReduceScatterv(in.data(), out.data(), counts.data(), whorlInt32,
                                            whorlMax, comm, on));
      static_cast<void>(second.run(comm, on));
      static_cast<void>(whorlRecv(theirs.data(), 1000, whorlInt32, previous, comm, on));
      if (std::string f = failure(whorlGroupEnd(), comm); !f.empty()) return f;
      if (std::string f = failure(whorlStreamSynchronize(stream), comm); !f.empty()) return f;
      if (!first.check().empty() || !second.check().empty()) return first.check();
      if (sum[999] != kRanks || theirs != ones) return "wrong data beside it";
      for (std::size_t i = 0; i < counts[static_cast<std::size_t>(rank)]; ++i) {
        if (out[i] != kRanks - 1) return "wrong maximum";
      }
    }
    return failure(whorlStreamDestroy(stream));
  });
}

TEST(BlocksOfOthers, ArraysMayChangeWhenTheCallHasReturned) {
  ThreadWorld world(2);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    whorlStream_t stream = nullptr;
    if (std::string f = failure(whorlStreamCreate(&stream)); !f.empty()) return f;
    AllToAllv exchange(Matrix{{3, 50'000}, {1, 0}}, rank, 1);
    if (std::string f = failure(exchange.run(comm, stream), comm); !f.empty()) return f;
    for (Counts* counts :
         {&exchange.send_counts, &exchange.recv_counts, &exchange.send_at, &exchange.recv_at}) {
      std::fill(counts->begin(), counts->end(), std::numeric_limits<std::size_t>::max());
    }
    if (std::string f = failure(whorlStreamSynchronize(stream), comm); !f.empty()) return f;
    if (std::string f = exchange.check(); !f.empty()) return f;
    return failure(whorlStreamDestroy(stream));
  });
}

/// Checks that the receiver finds a wrong count, including counts of 0 on either side.
TEST(BlocksOfOthers, CountsThatDisagreeNameBothRanks) {
  for (const auto& counts :
       {std::pair<std::size_t, std::size_t>{3, 5}, {3, 0}, {0, 5}, {200'000, 199'999}}) {
    const std::size_t sent = counts.first, wanted = counts.second;
    ThreadWorld world(3);
    std::vector<std::string> texts(3);
    std::vector<whorlResult_t> results(3);
    world.each([&](int rank, whorlComm_t comm) -> std::string {
      // Rank 2 sends `sent` elements to rank 1, which expects `wanted`.
      Counts out(3, 1), in(3, 1);
      if (rank == 2) out[1] = sent;
      if (rank == 1) in[2] = wanted;
      const std::vector<int> from(total(out, 0), rank);
      std::vector<int> to(total(in, 0), kGuard);
      const auto r = static_cast<std::size_t>(rank);
      results[r] = whorlAlltoAllv(from.data(), out.data(), nullptr, to.data(), in.data(), nullptr,
                                  whorlInt32, comm, nullptr);
      texts[r] = whorlGetLastError(comm);
      return {};
    });
    EXPECT_EQ(results[1], whorlInvalidUsage);
    for (const std::string& word :
         {std::string("rank 1"), std::string("rank 2"), std::string("alltoallv"),
          "count (" + std::to_string(wanted) + " here, " + std::to_string(sent) + " there)"}) {
      EXPECT_NE(texts[1].find(word), std::string::npos) << word << " is not in: " << texts[1];
    }
  }
}

/// Checks that each rank reports its own counts where all ranks know all counts.
TEST(BlocksOfOthers, TablesThatDisagreeNameTheCounts) {
  struct Case {
    Counts theirs;
    const char* word;
  };
  for (const Case& c : {Case{Counts{3, 1, 5}, "count (8 here, 9 there)"},
                        Case{Counts{3, 4, 1}, "the elements of recvcounts, not their sum"},
                        Case{Counts{1, 1, 1}, "sizes of blocks (different here, equal there)"}}) {
    for (const bool reduces : {false, true}) {
      ThreadWorld world(3);
      std::vector<std::string> texts(3);
      world.each([&](int rank, whorlComm_t comm) -> std::string {
        const auto own = static_cast<std::size_t>(rank);
        const Counts counts = rank == 2 ? c.theirs : Counts{3, 1, 4};
        const std::vector<int> from(9, rank);
        std::vector<int> to(9, kGuard);
        const whorlResult_t result =
            reduces ? whorlReduceScatterv(from.data(), to.data(), counts.data(), whorlInt32,
                                          whorlSum, comm, nullptr)
                    : whorlAllGatherv(from.data(), counts[own], to.data(), counts.data(), nullptr,
                                      whorlInt32, comm, nullptr);
        texts[own] = whorlGetLastError(comm);
        return result != whorlSuccess ? "" : "counts that differ were accepted";
      });
      const auto found = [&](const std::string& text) {
        return text.find(c.word) != std::string::npos &&
               text.find("recvcounts, which all ranks must give alike, are 3, 1, 4 here") !=
                   std::string::npos;
      };
      EXPECT_TRUE(found(texts[0]) || found(texts[1])) << texts[0] << "\n" << texts[1];
    }
  }
}

TEST(BlocksOfOthers, OtherCollectivesAreNotMistakenForThem) {
  ThreadWorld world(2);
  std::vector<std::string> texts(2);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    const std::vector<int> from(4, rank);
    std::vector<int> to(4);
    const Counts counts{2, 2};
    const whorlResult_t result =
        rank == 0 ? whorlAlltoAllv(from.data(), counts.data(), nullptr, to.data(), counts.data(),
                                   nullptr, whorlInt32, comm, nullptr)
                  : whorlAlltoAll(from.data(), to.data(), 2, whorlInt32, comm, nullptr);
    texts[static_cast<std::size_t>(rank)] = whorlGetLastError(comm);
    return result == whorlSuccess ? "was not noticed" : "";
  });
  EXPECT_NE((texts[0] + texts[1]).find("alltoallv"), std::string::npos) << texts[0] << texts[1];
}

class BadBlocks : public ::testing::Test {
 protected:
  void TearDown() override {
    world_.each([](int rank, whorlComm_t comm) -> std::string {
      AllToAllv exchange(Matrix{{1, 2}, {3, 4}}, rank, 0);
      if (std::string f = failure(exchange.run(comm), comm); !f.empty()) return f;
      return exchange.check();
    });
  }
  static void refused(whorlResult_t result, const std::vector<std::string>& words) {
    EXPECT_EQ(result, whorlInvalidArgument);
    const std::string text = whorlGetLastError(nullptr);
    for (const std::string& word : words) {
      EXPECT_NE(text.find(word), std::string::npos) << "\"" << word << "\" is not in: " << text;
    }
  }
  whorlResult_t all_to_all(const Counts& out, const Counts& out_at, const Counts& in,
                           const Counts& in_at) {
    return whorlAlltoAllv(a_.data(), out.data(), out_at.empty() ? nullptr : out_at.data(),
                          b_.data(), in.data(), in_at.empty() ? nullptr : in_at.data(), whorlInt32,
                          world_.comm(1), nullptr);
  }

  ThreadWorld world_{2};
  std::vector<int> a_ = std::vector<int>(64), b_ = std::vector<int>(64);
};

TEST_F(BadBlocks, AreRefused) {
  whorlComm_t const comm = world_.comm(1);
  const Counts two{2, 2};
  refused(whorlAlltoAllv(a_.data(), nullptr, nullptr, b_.data(), two.data(), nullptr, whorlInt32,
                         comm, nullptr),
          {"whorlAlltoAllv", "rank 1", "sendcounts is NULL"});
  refused(whorlAllGatherv(a_.data(), 2, b_.data(), nullptr, nullptr, whorlInt32, comm, nullptr),
          {"whorlAllGatherv", "recvcounts is NULL"});
  refused(whorlReduceScatterv(a_.data(), b_.data(), nullptr, whorlInt32, whorlSum, comm, nullptr),
          {"whorlReduceScatterv", "recvcounts is NULL"});
  refused(whorlAllGatherv(nullptr, 2, b_.data(), two.data(), nullptr, whorlInt32, comm, nullptr),
          {"sendbuff is NULL", "rank 1"});
  refused(whorlAllGatherv(a_.data(), 2, nullptr, two.data(), nullptr, whorlInt32, comm, nullptr),
          {"recvbuff is NULL", "rank 1"});
  refused(whorlAllGatherv(a_.data(), 3, b_.data(), two.data(), nullptr, whorlInt32, comm, nullptr),
          {"sends 3 elements to itself", "receives 2"});
  refused(all_to_all({1, 4}, {}, {1, 3}, {}), {"sends 4", "receives 3"});
  refused(all_to_all({1, 4}, {}, {1, 4}, {3, 0}), {"ranks 1 and 0 in recvbuff overlap"});
  refused(whorlGatherv(a_.data(), 2, b_.data(), two.data(), nullptr, whorlInt32, 7, comm, nullptr),
          {"whorlGatherv", "root is 7"});
  refused(
      whorlScatterv(a_.data(), two.data(), nullptr, b_.data(), 2, whorlInt32, -1, comm, nullptr),
      {"whorlScatterv", "root is -1"});
  refused(whorlAllGatherv(a_.data(), 2, b_.data(), two.data(), nullptr,
                          static_cast<whorlDataType_t>(15), comm, nullptr),
          {"datatype is 15"});
  refused(whorlReduceScatterv(a_.data(), b_.data(), two.data(), whorlInt32,
                              static_cast<whorlRedOp_t>(7), comm, nullptr),
          {"op is 7"});
  refused(
      whorlAllGatherv(a_.data(), 2, b_.data(), two.data(), nullptr, whorlInt32, nullptr, nullptr),
      {"comm is NULL"});
  refused(
      whorlAllGatherv(a_.data(), 2, b_.data(), two.data(), nullptr, whorlInt32, comm, a_.data()),
      {"stream"});
}

TEST_F(BadBlocks, OverlapsAreRefused) {
  whorlComm_t const comm = world_.comm(1);
  int* const a = a_.data();
  const Counts two{2, 2}, uneven{3, 4};
  refused(whorlAlltoAllv(a, two.data(), nullptr, a, two.data(), nullptr, whorlInt32, comm, nullptr),
          {"overlap", "in place"});
  refused(whorlAllGatherv(a, 2, a, two.data(), nullptr, whorlInt32, comm, nullptr), {"overlap"});
  refused(whorlAllGatherv(a + 3, 2, a, two.data(), nullptr, whorlInt32, comm, nullptr),
          {"overlap"});
  refused(whorlReduceScatterv(a, a + 2, uneven.data(), whorlInt32, whorlSum, comm, nullptr),
          {"overlap"});
  refused(whorlReduceScatterv(a, a, two.data(), whorlInt32, whorlSum, comm, nullptr), {"overlap"});
}

TEST_F(BadBlocks, CountsThatOverflowAreRefused) {
  for (const std::size_t huge :
       {std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max() / 4,
        std::size_t{1} << 62U}) {
    refused(all_to_all({huge, 1}, {}, {1, 1}, {}), {"rank 0 in sendbuff", "overflows"});
    refused(all_to_all({1, 1}, {}, {1, 1}, {0, huge}), {"rank 1 in recvbuff", "overflows"});
    refused(whorlAllGatherv(a_.data(), huge, b_.data(), Counts{1, 1}.data(), nullptr, whorlInt32,
                            world_.comm(1), nullptr),
            {"overflows"});
    refused(whorlReduceScatterv(a_.data(), b_.data(), Counts{huge, huge}.data(), whorlInt32,
                                whorlSum, world_.comm(1), nullptr),
            {"overflows"});
  }
}

TEST_F(BadBlocks, SpoilTheirGroup) {
  ASSERT_EQ(whorlGroupStart(), whorlSuccess);
  EXPECT_EQ(whorlBarrier(world_.comm(1), nullptr), whorlSuccess);
  EXPECT_EQ(all_to_all({1, 4}, {}, {1, 3}, {}), whorlInvalidArgument);
  refused(whorlGroupEnd(), {"sends 4"});
}

} // namespace
} // namespace whorl::test
