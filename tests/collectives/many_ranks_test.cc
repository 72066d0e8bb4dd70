// Tests with more ranks than the 255 partners that a lane of a schedule can name, as threads: every
// collective of the C API.
#include <gtest/gtest.h>

#include "tests/support/all_operations.h"
#include "tests/support/oracle.h"
#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

void run_threads(int nranks) {
  ThreadWorld world(nranks);
  world.each([&](int rank, whorlComm_t comm) { return all_operations(rank, nranks, comm); });
}

TEST(ManyRanksFull, PairwiseTakesSeveralLanesOfAChannel) {
  const ScopedEnv env({{"WHORL_ALGO", "alltoall:pairwise"}, {"WHORL_VERIFY", "0"}});
  const int nranks = 300;
  ThreadWorld world(nranks);
  world.each([&](int rank, whorlComm_t comm) {
    Buffers buffers({.kind = CollectiveCase::kAllToAll, .count = 100}, rank, nranks);
    auto failed = failure(buffers.run(comm), comm);
    return failed.empty() ? buffers.check() : failed;
  });
}

TEST(ManyRanks, Threads260) { run_threads(260); }
TEST(ManyRanksFull, Threads1024) { run_threads(1024); }

} // namespace
} // namespace whorl::test
