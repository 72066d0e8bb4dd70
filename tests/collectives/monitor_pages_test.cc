// Tests of what others see of a rank: the page that whorl-stat reads, and the file of a failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "monitor/process.h"
#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Reads the pages of a process.
std::vector<monitor::Snapshot> pages_of(::pid_t pid) {
  std::vector<monitor::ObservedRank> ranks;
  EXPECT_EQ(monitor::observe_process(pid, ranks), 0);
  std::vector<monitor::Snapshot> pages;
  for (monitor::ObservedRank& rank : ranks) pages.push_back(std::move(rank.page));
  return pages;
}

monitor::Snapshot page_of_rank(int rank) {
  for (monitor::Snapshot& page : pages_of(::getpid())) {
    if (page.rank == rank) return page;
  }
  ADD_FAILURE() << "no page of rank " << rank;
  return {};
}

bool is_stopped(::pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text.substr(name_end + 2, 1) == "T";
}

// A process that has used whorl cannot fork ranks, so tests of processes come first.

/// Rank 1 of three stops itself; the parent finds whom the others wait for, in its page as well.
TEST(PagesOfProcesses, ShowWhomARankWaitsForWhileThatIsStopped) {
  const auto outcomes = run_ranks(3, Mode::kProcesses, [](RankContext& context) {
    whorlComm_t comm = join(context, {{"WHORL_LOG", "error"}});
    ASSERT_NE(comm, nullptr);
    ASSERT_EQ(failure(whorlBarrier(comm, nullptr), comm), "");
    const ::pid_t self = ::getpid();
    const auto pids = context.allgather(std::as_bytes(std::span(&self, 1)));
    const auto pid = [&](std::size_t rank) {
      ::pid_t value = 0;
      std::memcpy(&value, pids[rank].data(), sizeof value);
      return value;
    };
    if (context.rank == 1) ::raise(SIGSTOP);
    if (context.rank == 2) {
      // Rank 0 begins to wait, shows that, and this rank sets the stopped one free.
      for (int i = 0; i < 2000; ++i) {
        const auto waiting = pages_of(pid(0));
        ASSERT_EQ(waiting.size(), 1U);
        if (is_stopped(pid(1)) && waiting[0].wait.under_way && waiting[0].wait.peer == 1) {
          EXPECT_THAT(waiting[0].wait.text, HasSubstr("waiting for rank 1 (host "));
          EXPECT_EQ(waiting[0].begun, 2U);
          break;
        }
        ASSERT_LT(i, 1999) << "rank 0 shows no wait for rank 1";
        ::usleep(5000);
      }
      const auto stopped = pages_of(pid(1)); // needs no help of that process
      ASSERT_EQ(stopped.size(), 1U);
      EXPECT_EQ(stopped[0].begun, 1U);
      EXPECT_FALSE(stopped[0].wait.under_way);
      ::kill(pid(1), SIGCONT);
    }
    std::vector<float> data(8);
    const whorlResult_t result =
        context.rank == 2   ? whorlRecv(data.data(), 8, whorlFloat32, 0, comm, nullptr)
        : context.rank == 0 ? whorlRecv(data.data(), 8, whorlFloat32, 1, comm, nullptr)
                            : whorlSend(data.data(), 8, whorlFloat32, 0, comm, nullptr);
    EXPECT_EQ(failure(result, comm), "");
    if (context.rank == 0) {
      EXPECT_EQ(failure(whorlSend(data.data(), 8, whorlFloat32, 2, comm, nullptr), comm), "");
      EXPECT_GT(pages_of(self).at(0).waited_ns[1], 0U);
    }
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

class FlightFile : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/whorl-flight-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(FlightFile, HasTheLastOperationsOfEachRankThatFails) {
  const auto outcomes = run_ranks(3, Mode::kProcesses, [&](RankContext& context) {
    whorlComm_t comm = join(context, {{"WHORL_FLIGHT_FILE", folder_ + "/%r.%j"}});
    ASSERT_NE(comm, nullptr);
    ASSERT_EQ(failure(whorlBarrier(comm, nullptr), comm), "");
    context.barrier();
    if (context.rank == 1) context.die();
    std::vector<float> data(8);
    while (whorlAllReduce(data.data(), data.data(), 8, whorlFloat32, whorlSum, comm, nullptr) ==
           whorlSuccess) {
    }
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_TRUE(outcomes[1].killed);
  EXPECT_EQ(outcomes[0].failures + outcomes[2].failures, "");
  std::set<int> ranks;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    std::ifstream file(entry.path());
    const auto json = nlohmann::json::parse(file);
    const int rank = json["rank"];
    ranks.insert(rank);
    EXPECT_EQ(entry.path().filename(), // as whorl-stat calls the communicator
              std::to_string(rank) + "." + json["communicator"].get<std::string>().substr(0, 8));
    EXPECT_EQ(json["phase"], "failed");
    EXPECT_THAT(json["error"].get<std::string>(), HasSubstr("rank 1"));
    EXPECT_EQ(json["operations"][0]["operation"], "barrier");
    EXPECT_EQ(json["operations"].back()["state"], "started");
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 2}));
}

using FlightFileOfThreads = FlightFile;

TEST_F(FlightFileOfThreads, IsNotMadeWithoutAFailure) {
  const ScopedEnv env({{"WHORL_FLIGHT_FILE", folder_ + "/file"}});
  { ThreadWorld world(2); }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(FlightFileOfThreads, StaysWhereItWasToBe) {
  const ScopedEnv env({{"WHORL_FLIGHT_FILE", "file"}});
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  ThreadWorld world(2);
  std::filesystem::current_path(before);
  EXPECT_EQ(whorlCommRevoke(world.comm(0), WHORL_REVOKE_DEFAULT), whorlSuccess);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/file.0"));
}

TEST_F(FlightFileOfThreads, NeedsAFolder) {
  const ScopedEnv env({{"WHORL_FLIGHT_FILE", folder_ + "/missing/file"}});
  EXPECT_THAT(creation_error(2),
              AllOf(HasSubstr("WHORL_FLIGHT_FILE"), HasSubstr(folder_ + "/missing")));
}

TEST(Pages, ShowsEveryOperation) {
  ThreadWorld world(2);
  world.each([](int rank, whorlComm_t comm) {
    std::vector<float> small(2), large(100'000);
    const int peer = 1 - rank;
    std::vector<std::size_t> counts{3, 4};
    std::vector<float> blocks(8), received(8);
    for (int i = 0; i < 2; ++i) { // also repeated calls, which take a shorter way
      for (auto* data : {&small, &large}) {
        if (auto error = failure(whorlAllReduce(data->data(), data->data(), data->size(),
                                                whorlFloat32, whorlSum, comm, nullptr),
                                 comm);
            !error.empty()) {
          return error;
        }
      }
    }
    std::string error = failure(whorlGroupStart());
    error += failure(whorlSend(small.data(), 2, whorlFloat32, peer, comm, nullptr), comm);
    error += failure(whorlRecv(received.data(), 2, whorlFloat32, peer, comm, nullptr), comm);
    error += failure(whorlGroupEnd());
    std::vector<std::size_t> sends(2, counts[static_cast<std::size_t>(peer)]);
    sends[static_cast<std::size_t>(rank)] = counts[static_cast<std::size_t>(rank)];
    std::vector<std::size_t> receives(2, counts[static_cast<std::size_t>(rank)]);
    error += failure(whorlAlltoAllv(blocks.data(), sends.data(), nullptr, received.data(),
                                    receives.data(), nullptr, whorlFloat32, comm, nullptr),
                     comm);
    return error;
  });
  const monitor::Snapshot page = page_of_rank(1);
  EXPECT_EQ(page.phase, monitor::Phase::kReady);
  std::vector<std::string> texts;
  for (const auto& operation : page.operations) {
    EXPECT_FALSE(operation.under_way);
    EXPECT_LE(operation.began_ns, page.taken_ns);
    texts.push_back(monitor::describe(operation));
    const bool small = operation.fingerprint.count() == 2; // not timed, which would cost too much
    EXPECT_EQ(operation.ended_ns == 0, small) << texts.back();
  }
  std::sort(texts.begin() + 4, texts.begin() + 6); // the two transfers begin in any order
  EXPECT_THAT(texts, ::testing::ElementsAre("allreduce number 1 of 2 float32 (sum)",
                                            "allreduce number 2 of 100000 float32 (sum)",
                                            "allreduce number 3 of 2 float32 (sum)",
                                            "allreduce number 4 of 100000 float32 (sum)",
                                            "receive number 1 of 2 float32 from rank 0",
                                            "send number 1 of 2 float32 to rank 0",
                                            HasSubstr("alltoallv number 5")));
}

TEST(Pages, RemembersAsManyOperationsAsAsked) {
  const ScopedEnv env({{"WHORL_FLIGHT_RECORDS", "5"}}); // becomes 8
  ThreadWorld world(2);
  world.each([](int, whorlComm_t comm) {
    std::string error;
    for (int i = 0; i < 20; ++i) error += failure(whorlBarrier(comm, nullptr), comm);
    return error;
  });
  const monitor::Snapshot page = page_of_rank(0);
  EXPECT_EQ(page.begun, 20U);
  ASSERT_EQ(page.operations.size(), 7U); // the oldest may be about to be overwritten
  EXPECT_EQ(page.operations.back().fingerprint.sequence, 20U);
}

} // namespace
} // namespace whorl::test
