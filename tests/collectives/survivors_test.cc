// Tests of the other ranks' errors when a process dies.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

/// Kills rank 1 of three; the others repeat `call`, and soon get an error that names rank 1. The
/// first call may still succeed, because the dead rank has done its part.
void expect_survivors_to_name_the_dead(
    const std::function<whorlResult_t(const RankContext&, whorlComm_t)>& call) {
  with_each_transport([&](const char* transport) {
    const auto outcomes = run_ranks(3, Mode::kProcesses, [&](RankContext& context) {
      whorlComm_t comm = join(context, {{"WHORL_TRANSPORTS", transport}});
      ASSERT_NE(comm, nullptr);
      ASSERT_EQ(failure(whorlBarrier(comm, nullptr), comm), "");
      context.barrier(); // all have left whorl's barrier, which would also notice the death
      if (context.rank == 1) context.die();
      const auto start = std::chrono::steady_clock::now();
      whorlResult_t result = whorlSuccess;
      for (int i = 0; i < 3 && result == whorlSuccess; ++i) result = call(context, comm);
      EXPECT_EQ(result, whorlRemoteError);
      const std::string text = whorlGetLastError(comm);
      EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
      EXPECT_NE(text.find("; rank " + std::to_string(context.rank) + " was in "), std::string::npos)
          << text;
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << text;
      EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    });
    EXPECT_TRUE(outcomes[1].killed);
    EXPECT_EQ(outcomes[0].failures, "") << transport;
    EXPECT_EQ(outcomes[2].failures, "") << transport;
  });
}

TEST(Survivors, OfAnAllreduce) {
  expect_survivors_to_name_the_dead([](const RankContext&, whorlComm_t comm) {
    std::vector<float> data(1000);
    return whorlAllReduce(data.data(), data.data(), data.size(), whorlFloat32, whorlSum, comm,
                          nullptr);
  });
}

TEST(Survivors, OfAReceiveFromAnyRank) {
  expect_survivors_to_name_the_dead([](const RankContext&, whorlComm_t comm) {
    int value = 0, source = -5;
    const whorlResult_t result = whorlRecvAny(&value, 1, whorlInt32, &source, comm, nullptr);
    EXPECT_EQ(source, -5);
    return result;
  });
}

TEST(Survivors, OfCollectivesWithUnevenBlocks) {
  const std::vector<std::size_t> counts{100'000, 7, 30'000};
  expect_survivors_to_name_the_dead([&](const RankContext&, whorlComm_t comm) {
    const std::vector<int> in(130'007);
    std::vector<int> out(100'000);
    return whorlReduceScatterv(in.data(), out.data(), counts.data(), whorlInt32, whorlSum, comm,
                               nullptr);
  });
  expect_survivors_to_name_the_dead([&](const RankContext& context, whorlComm_t comm) {
    const std::size_t own = counts[static_cast<std::size_t>(context.rank)];
    const std::vector<int> in(3 * own);
    std::vector<int> out(130'007);
    return whorlAlltoAllv(in.data(), std::vector<std::size_t>(3, own).data(), nullptr, out.data(),
                          counts.data(), nullptr, whorlInt32, comm, nullptr);
  });
  expect_survivors_to_name_the_dead([&](const RankContext& context, whorlComm_t comm) {
    const std::vector<int> in(100'000);
    std::vector<int> out(130'007);
    return whorlAllGatherv(in.data(), counts[static_cast<std::size_t>(context.rank)], out.data(),
                           counts.data(), nullptr, whorlInt32, comm, nullptr);
  });
}

/// A rank may find a death between two calls: the error of the next one still says which call that
/// is, whether it repeats the last one or not.
TEST(Survivors, NameTheCallBeforeWhichADeathWasFound) {
  for (const std::size_t count : {std::size_t{1000}, std::size_t{999}}) {
    const auto outcomes = run_ranks(3, Mode::kProcesses, [&](RankContext& context) {
      whorlComm_t comm = join(context, {});
      ASSERT_NE(comm, nullptr);
      std::vector<float> in(1000), out(1000);
      const auto sum = [&](std::size_t elements) {
        return whorlAllReduce(in.data(), out.data(), elements, whorlFloat32, whorlSum, comm,
                              nullptr);
      };
      ASSERT_EQ(failure(sum(1000), comm), "");
      context.barrier();
      if (context.rank == 1) context.die();
      whorlResult_t state = whorlSuccess;
      while (state == whorlSuccess) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ASSERT_EQ(whorlCommGetAsyncError(comm, &state), whorlSuccess);
      }
      for (int calls = 0; calls < 2; ++calls) {
        EXPECT_EQ(sum(count), whorlRemoteError);
        const std::string text = whorlGetLastError(comm);
        EXPECT_EQ(text.find("rank 1 ("), 0) << text;
        EXPECT_NE(text.find("of " + std::to_string(count) + " float32 (sum)"), std::string::npos)
            << text;
      }
      EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
    });
    EXPECT_TRUE(outcomes[1].killed);
    EXPECT_EQ(outcomes[0].failures + outcomes[2].failures, "") << count;
  }
}

/// Lets a transfer of a call that has returned fail, and repeats the allreduce before it: the error
/// describes the transfer, although its call and what that call knew are gone.
void expect_transfer_to_be_described(
    const char* description,
    const std::function<whorlResult_t(std::vector<float>& data, whorlComm_t)>& transfer) {
  const auto outcomes = run_ranks(3, Mode::kProcesses, [&](RankContext& context) {
    whorlComm_t comm = join(context, {});
    ASSERT_NE(comm, nullptr);
    std::vector<float> in(1000), out(1000), large(1 << 20);
    const auto sum = [&] {
      return whorlAllReduce(in.data(), out.data(), in.size(), whorlFloat32, whorlSum, comm,
                            nullptr);
    };
    ASSERT_EQ(failure(sum(), comm), "");
    context.barrier();
    if (context.rank == 1) context.die();
    EXPECT_EQ(transfer(large, comm), whorlRemoteError);
    EXPECT_EQ(sum(), whorlRemoteError);
    const std::string text = whorlGetLastError(comm);
    EXPECT_EQ(text.find("rank 1 ("), 0) << text;
    EXPECT_NE(text.find(" was in "), std::string::npos) << text;
    EXPECT_NE(text.find(description), std::string::npos) << text;
    EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
  });
  EXPECT_TRUE(outcomes[1].killed);
  EXPECT_EQ(outcomes[0].failures + outcomes[2].failures, "");
}

TEST(Survivors, DescribeATransferAfterItsCall) {
  expect_transfer_to_be_described(
      " of 1048576 float32 ", [](std::vector<float>& data, whorlComm_t comm) {
        whorlGroupStart();
        for (int i = 0; i < 2; ++i) {
          whorlSend(data.data(), data.size(), whorlFloat32, 1, comm, nullptr);
          whorlRecv(data.data(), data.size(), whorlFloat32, 1, comm, nullptr);
        }
        return whorlGroupEnd();
      });
  expect_transfer_to_be_described(
      "recv of 7 float32 from any rank", [](std::vector<float>& data, whorlComm_t comm) {
        int source = -1;
        return whorlRecvAny(data.data(), 7, whorlFloat32, &source, comm, nullptr);
      });
}

/// Lets rank 1 be late for so many calls. Without any setting, rank 0 says so once, with names.
void expect_one_warning(int late_calls) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [&](RankContext& context) {
    whorlComm_t comm = join(context, {});
    ASSERT_NE(comm, nullptr);
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < late_calls; ++i) {
      if (context.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1300));
      float value = 1;
      EXPECT_EQ(
          failure(whorlAllReduce(&value, &value, 1, whorlFloat32, whorlSum, comm, nullptr), comm),
          "");
    }
    const std::string text = ::testing::internal::GetCapturedStderr();
    const std::string expected =
        " in allreduce number 1 of 1 float32 (sum): waiting for rank 1 (host ";
    EXPECT_EQ(text.find(expected) != std::string::npos, context.rank == 0) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), context.rank == 0 ? 1 : 0) << text;
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST(Survivors, WarnOfALateRank) { expect_one_warning(1); }
TEST(SurvivorsFull, WarnOnceOfALateRank) { expect_one_warning(2); }

/// In a ring ranks wait for their neighbours, but the one that does not come is named.
TEST(Survivors, NameTheRankThatDoesNotCome) {
  with_each_transport([&](const char* transport) {
    const auto outcomes = run_ranks(5, Mode::kProcesses, [&](RankContext& context) {
      whorlComm_t comm = join(context, {{"WHORL_TRANSPORTS", transport},
                                        {"WHORL_ALGO", "allreduce:ring"},
                                        {"WHORL_TIMEOUT_MS", "900"}});
      ASSERT_NE(comm, nullptr);
      ASSERT_EQ(failure(whorlBarrier(comm, nullptr), comm), "");
      if (context.rank != 2) {
        std::vector<float> data(1 << 20);
        EXPECT_EQ(whorlAllReduce(data.data(), data.data(), data.size(), whorlFloat32, whorlSum,
                                 comm, nullptr),
                  whorlRemoteError);
        const std::string text = whorlGetLastError(comm);
        const std::size_t culprit = text.find(") has not made this call; no call after barrier ");
        ASSERT_NE(culprit, std::string::npos) << text;
        EXPECT_EQ(text.substr(text.rfind(". ", culprit) + 2, 6), "rank 2") << text;
      }
      context.barrier();
      whorlCommAbort(comm);
    });
    EXPECT_EQ(failures_of(outcomes), "") << transport;
  });
}

/// Calls allreduce, maybe in a group with a receive from rank 1, and checks that it fails at the
/// deadline with a text that has `expected`.
void expect_late(whorlComm_t comm, const std::string& expected, bool in_group = false) {
  float value = 1, other = 0;
  if (in_group) {
    whorlGroupStart();
    whorlRecv(&other, 1, whorlFloat32, 1, comm, nullptr);
  }
  whorlResult_t result = whorlAllReduce(&value, &value, 1, whorlFloat32, whorlSum, comm, nullptr);
  if (in_group) result = whorlGroupEnd();
  const std::string text = failure(result, comm);
  EXPECT_NE(text.find("no progress within the timeout of 0.6 s"), std::string::npos) << text;
  EXPECT_NE(text.find(expected), std::string::npos) << text;
}

/// Stops rank 1, and checks that rank 0, which waits in an allreduce, says so.
void expect_stopped(const char* transport, bool in_group) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [&](RankContext& context) {
    whorlComm_t comm =
        join(context, {{"WHORL_TRANSPORTS", transport}, {"WHORL_TIMEOUT_MS", "600"}});
    ASSERT_NE(comm, nullptr);
    const ::pid_t self = ::getpid();
    const auto pids = context.allgather(std::as_bytes(std::span(&self, 1)));
    if (context.rank == 1) ::raise(SIGSTOP);
    if (context.rank == 0) {
      expect_late(comm, ") is stopped, by a signal or a debugger; kill -CONT ", in_group);
      ::pid_t stopped = 0;
      std::memcpy(&stopped, pids[1].data(), sizeof stopped);
      ::kill(stopped, SIGCONT);
    }
    whorlCommAbort(comm);
  });
  EXPECT_EQ(failures_of(outcomes), "") << transport << (in_group ? ", in a group" : "");
}

TEST(Survivors, SayThatAProcessIsStopped) {
  with_each_transport([](const char* transport) {
    for (const bool in_group : {false, true}) expect_stopped(transport, in_group);
  });
}

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

/// Returns whether a process may go into a cgroup.
bool may_enter(const std::string& group) {
  const ::pid_t child = ::fork();
  if (child == 0) {
    ::_exit(write_file(group + "/cgroup.procs", std::to_string(::getpid())) ? 0 : 1);
  }
  int status = 1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

TEST(Survivors, SayThatAProcessIsFrozen) {
  std::string group = "/sys/fs/cgroup/whorl-test-" + std::to_string(::getpid());
  if (::access("/sys/fs/cgroup/unified", F_OK) == 0) group.insert(14, "/unified");
  if (::mkdir(group.c_str(), 0700) != 0 ||
      ::access((group + "/cgroup.freeze").c_str(), W_OK) != 0 || !may_enter(group)) {
    ::rmdir(group.c_str());
    GTEST_SKIP() << "this process cannot make and enter a cgroup of version 2: " << group;
  }
  const auto outcomes = run_ranks(2, Mode::kProcesses, [&](RankContext& context) {
    whorlComm_t comm = join(context, {});
    ASSERT_NE(comm, nullptr);
    EXPECT_EQ(whorlCommSetTimeout(comm, 600), whorlSuccess);
    if (context.rank == 1) {
      EXPECT_TRUE(write_file(group + "/cgroup.procs", std::to_string(::getpid())));
    }
    context.barrier();
    if (context.rank == 0) {
      EXPECT_TRUE(write_file(group + "/cgroup.freeze", "1"));
      expect_late(comm, ") is frozen with its cgroup, as by systemctl freeze or docker pause; ");
      EXPECT_TRUE(write_file(group + "/cgroup.freeze", "0"));
    }
    context.barrier();
    whorlCommAbort(comm);
  });
  EXPECT_EQ(failures_of(outcomes), "");
  ::rmdir(group.c_str());
}

/// Two ranks use two communicators in different orders.
TEST(Survivors, SayThatAProcessIsInAnotherCommunicator) {
  with_each_transport([](const char* transport) {
    const auto outcomes = run_ranks(2, Mode::kProcesses, [&](RankContext& context) {
      const Environment environment = {{"WHORL_TRANSPORTS", transport},
                                       {"WHORL_TIMEOUT_MS", context.rank == 0 ? "600" : "20000"}};
      whorlComm_t comms[2] = {join(context, environment), join(context, environment)};
      ASSERT_NE(comms[0], nullptr);
      ASSERT_NE(comms[1], nullptr);
      if (context.rank == 0) {
        expect_late(comms[0], ") has not made this call; its process is busy in communicator ");
      } else {
        float value = 1;
        EXPECT_EQ(whorlAllReduce(&value, &value, 1, whorlFloat32, whorlSum, comms[1], nullptr),
                  whorlRemoteError);
      }
      whorlCommAbort(comms[1]);
      context.barrier();
      whorlCommAbort(comms[0]);
    });
    EXPECT_EQ(failures_of(outcomes), "") << transport;
  });
}

/// Lets rank 3 gather from all, without rank 1 or with rank 1 after so many milliseconds, and then
/// broadcast to all if `root_comes`. Ranks 0 and 2, which only send to the gather, get an error of
/// the broadcast, in which the rank that is blamed must be `culprit`.
void expect_blame_across_operations(std::optional<int> late_ms, bool root_comes, int culprit) {
  with_each_transport([&](const char* transport) {
    const auto outcomes = run_ranks(4, Mode::kProcesses, [&](RankContext& context) {
      whorlComm_t comm = join(context, {{"WHORL_TRANSPORTS", transport}});
      ASSERT_NE(comm, nullptr);
      ASSERT_EQ(failure(whorlBarrier(comm, nullptr), comm), "");
      float mine = 1, all[4];
      const auto gather = [&] {
        return whorlGather(&mine, all, 1, whorlFloat32, 3, comm, nullptr);
      };
      const auto broadcast = [&] {
        return whorlBroadcast(&mine, &mine, 1, whorlFloat32, 3, comm, nullptr);
      };
      if (context.rank == 3) {
        EXPECT_EQ(gather(), late_ms ? whorlSuccess : whorlRemoteError);
        if (root_comes) broadcast();
      } else if (context.rank != 1) {
        EXPECT_EQ(failure(gather(), comm), "");
        ASSERT_EQ(whorlCommSetTimeout(comm, 1000), whorlSuccess); // before that of rank 3
        EXPECT_EQ(broadcast(), whorlRemoteError);
        const std::string text = whorlGetLastError(comm);
        const std::size_t blame = text.find("; if it needs longer");
        ASSERT_NE(blame, std::string::npos) << text;
        EXPECT_EQ(text.substr(text.rfind(". ", blame) + 2, 6), "rank " + std::to_string(culprit))
            << text;
      } else if (late_ms) {
        std::this_thread::sleep_for(std::chrono::milliseconds(*late_ms));
        EXPECT_EQ(failure(gather(), comm), "");
      }
      context.barrier();
      whorlCommAbort(comm);
    });
    EXPECT_EQ(failures_of(outcomes), "") << transport;
  });
}

TEST(Survivors, NameTheRankThatKeepsAnotherInAnEarlierOperation) {
  expect_blame_across_operations({}, true, 1);
}

/// A rank that was stuck for a while, and has gone on since, is to blame itself.
TEST(Survivors, NameTheRankThatIsLateAfterAnotherWas) {
  expect_blame_across_operations(200, false, 3);
}

} // namespace
} // namespace whorl::test
