// Tests that a rank which fails, dies or aborts while a communicator is made ends the creation for
// all ranks at once, with its name and its reason.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

/// Far below the timeout of 30 s, and far above the promise for an idle machine.
constexpr std::chrono::seconds kSoon{5};

/// Checks what a call returned that ended with an error because of rank 1.
void expect_reason(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find("rank 1 (host"), std::string::npos) << text;
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(FailedCreation, ByASettingOfOneRank) {
  const auto outcomes = run_ranks(4, Mode::kProcesses, [](RankContext& context) {
    const whorlUniqueId id = shared_id(context);
    if (context.rank == 1) setenv("WHORL_SLOTS", "-5", 1);
    const auto start = std::chrono::steady_clock::now();
    whorlComm_t comm = nullptr;
    EXPECT_EQ(whorlCommInitRank(&comm, context.nranks, id, context.rank), whorlInvalidUsage);
    EXPECT_EQ(comm, nullptr);
    const std::string text = whorlGetLastError(nullptr);
    if (context.rank != 1) expect_reason(text, "could not join: WHORL_SLOTS=\"-5\" is not");
    EXPECT_LT(std::chrono::steady_clock::now() - start, kSoon) << text;
    context.barrier(); // the root lives in rank 0
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST(FailedCreation, ByAnAbort) {
  const auto outcomes = run_ranks(4, Mode::kProcesses, [](RankContext& context) {
    const whorlUniqueId id = shared_id(context);
    whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
    if (context.rank == 1) {
      config.blocking = 0;
      whorlComm_t comm = nullptr;
      // The communicator has one rank more, so that its creation cannot end by itself.
      EXPECT_EQ(whorlCommInitRankConfig(&comm, 5, id, 1, &config), whorlInProgress);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
    } else {
      const auto start = std::chrono::steady_clock::now();
      whorlComm_t comm = nullptr;
      EXPECT_NE(whorlCommInitRankConfig(&comm, 5, id, context.rank, &config), whorlSuccess);
      expect_reason(whorlGetLastError(nullptr), "whorlCommAbort has ended the creation");
      EXPECT_LT(std::chrono::steady_clock::now() - start, kSoon);
    }
    context.barrier();
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

/// Returns the call by which a rank makes a communicator.
using Prepare = std::function<std::function<whorlResult_t(whorlComm_t*)>(RankContext&)>;

/// Lets rank 1 die some time after `create` has begun. The call of another rank returns soon: with
/// success, if the communicator was complete, or with the name of the dead, or of who is missing.
void expect_deaths_to_end(const char* transport, const Prepare& prepare, int step_us) {
  for (int delay_us = 0; delay_us <= 6000; delay_us += step_us) {
    const auto outcomes = run_ranks(4, Mode::kProcesses, [&](RankContext& context) {
      setenv("WHORL_TRANSPORTS", transport, 1);
      const auto create = prepare(context);
      context.barrier();
      std::thread killer;
      if (context.rank == 1) {
        killer = std::thread([&] {
          ::usleep(static_cast<useconds_t>(delay_us));
          context.die();
        });
      }
      const auto start = std::chrono::steady_clock::now();
      whorlComm_t comm = nullptr;
      const whorlResult_t result = create(&comm);
      const std::string text = whorlGetLastError(nullptr);
      EXPECT_LT(std::chrono::steady_clock::now() - start, kSoon) << text;
      if (context.rank == 1) ::pause();
      if (result != whorlSuccess && text.find("rank 1 of 4 did not arrive") == std::string::npos) {
        EXPECT_NE(text.find("rank 1 (host"), std::string::npos) << text;
      }
      auto& done = *reinterpret_cast<std::atomic<int>*>(context.shared());
      ++done;
      while (done.load() < 3) ::usleep(1000); // the root lives in rank 0
    });
    EXPECT_TRUE(outcomes[1].killed);
    for (const int rank : {0, 2, 3}) {
      EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].failures, "")
          << transport << ", rank " << rank << ", death after " << delay_us << " us";
    }
  }
}

/// Lets rank 1 die at times that are so far apart, with each transport.
void expect_any_death_to_end(int step_us, const Prepare& prepare) {
  with_each_transport(
      [&](const char* transport) { expect_deaths_to_end(transport, prepare, step_us); });
}

/// Uses the number of the victim in the communicator that is split, where others have another one.
TEST(FailedCreation, OfASplitByADeath) {
  expect_any_death_to_end(500, [](RankContext& context) {
    whorlComm_t parent = join(context, {});
    return [parent, key = -context.rank](whorlComm_t* comm) {
      return whorlCommSplit(parent, 0, key, comm, nullptr);
    };
  });
}

/// Lets rank 1 die at times that are so far apart. If it dies before it comes to the meeting, it is
/// not known there, and is missed at the timeout.
void expect_any_death_to_end_creation(int step_us) {
  expect_any_death_to_end(step_us, [](RankContext& context) {
    setenv("WHORL_TIMEOUT_MS", "2000", 1);
    const whorlUniqueId id = shared_id(context);
    return [id, rank = context.rank](whorlComm_t* comm) {
      return whorlCommInitRank(comm, 4, id, rank);
    };
  });
}

TEST(FailedCreation, ByADeath) { expect_any_death_to_end_creation(3000); }
TEST(FailedCreationFull, ByADeath) { expect_any_death_to_end_creation(500); }

} // namespace
} // namespace whorl::test
