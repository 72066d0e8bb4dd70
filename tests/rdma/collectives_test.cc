// Tests of communicators over RDMA devices, which tests/rdma/suite.sh runs in a virtual machine:
// every collective, the choice of transports, deaths and lost packets; and of UCX over them.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/support/oracle.h"
#include "tests/support/process_world.h"
#include "transports/ucx/make.h"

namespace whorl::test {
namespace {

/// Counts the packets that have left a device.
std::uint64_t packets_sent(const std::string& device) {
  std::uint64_t count = 0;
  std::ifstream("/sys/class/infiniband/" + device + "/ports/1/hw_counters/sent_pkts") >> count;
  return count;
}
std::uint64_t packets_sent() { return packets_sent("rxe0") + packets_sent("rxe1"); }

/// Counts the bytes that have left the two interfaces below the devices, with all headers.
double bytes_sent() {
  double sum = 0;
  for (const char* const name : {"veth0", "veth1"}) {
    double count = 0;
    std::ifstream("/sys/class/net/" + std::string(name) + "/statistics/tx_bytes") >> count;
    sum += count;
  }
  return sum;
}

/// Counts the packets that the queue before an interface has dropped.
int packets_dropped(const std::string& interface) {
  std::FILE* const pipe = ::popen(("tc -s qdisc show dev " + interface).c_str(), "r");
  std::array<char, 4096> text{};
  const std::size_t size = std::fread(text.data(), 1, text.size() - 1, pipe);
  ::pclose(pipe);
  const std::string_view all(text.data(), size);
  const std::size_t at = all.find("dropped ");
  return at == std::string_view::npos ? -1 : std::atoi(all.data() + at + 8);
}

bool has_address(const std::string& device) {
  std::string gid;
  std::ifstream("/sys/class/infiniband/" + device + "/ports/1/gids/0") >> gid;
  return gid.starts_with("fe80");
}

/// Gives the link between the two devices back.
void set_link_up() {
  EXPECT_EQ(std::system("ip link set veth0 up"), 0);
  for (int i = 0; i < 100 && !(has_address("rxe0") && has_address("rxe1")); ++i) ::usleep(100'000);
}

void run_all(const RankContext& context, whorlComm_t comm,
             std::initializer_list<std::size_t> counts) {
  ASSERT_EQ(run_all_kinds(context.rank, context.nranks, comm, counts), "");
  EXPECT_EQ(pass_around(context.rank, context.nranks, comm), "");
}

std::string run_world(int nranks, const std::function<Environment(int rank)>& environment,
                      const JoinedBody& body) {
  return run_joined(nranks, environment, body, {.timeout_ns = 200'000'000'000});
}

/// Adds up vectors that take many messages.
whorlResult_t sum(whorlComm_t comm) {
  std::vector<float> data(100'000);
  return whorlAllReduce(data.data(), data.data(), data.size(), whorlFloat32, whorlSum, comm,
                        nullptr);
}

Environment over_verbs(int) { return {{"WHORL_TRANSPORTS", "verbs"}}; }

/// Asks for UCX over one device for each rank, by reliable connections.
Environment over_ucx(int rank) {
  return {{"WHORL_TRANSPORTS", "ucx"},
          {"UCX_TLS", "rc_v,self"},
          {"UCX_NET_DEVICES", rank % 2 == 0 ? "rxe0:1" : "rxe1:1"}};
}

/// Lets all ranks add up vectors, kills rank 1 of three, and expects that the others name it.
void expect_a_killed_rank_is_named(const std::function<Environment(int rank)>& environment) {
  const int victim = 1;
  const auto outcomes = run_ranks(3, Mode::kProcesses, [&](RankContext& context) {
    whorlComm_t comm = join(context, environment(context.rank));
    ASSERT_NE(comm, nullptr);
    ASSERT_EQ(failure(sum(comm), comm), "");
    context.barrier();
    if (context.rank == victim) context.die();
    const auto began = std::chrono::steady_clock::now();
    whorlResult_t result = whorlSuccess;
    while (result == whorlSuccess) result = sum(comm);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(2));
    const std::string text = whorlGetLastError(comm);
    EXPECT_NE(text.find("rank 1 (host"), std::string::npos) << text;
    EXPECT_NE(text.find("died"), std::string::npos) << text;
    whorlCommDestroy(comm);
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].failures, "") << rank;
  }
}

TEST(Verbs, EveryCollectiveIsExact) {
  const std::uint64_t before0 = packets_sent("rxe0"), before1 = packets_sent("rxe1");
  EXPECT_EQ(run_world(3, over_verbs,
                      [](RankContext& context, whorlComm_t comm) {
                        run_all(context, comm, {0, 1, 1000, 70'001});
                      }),
            "");
  EXPECT_GT(packets_sent("rxe0"), before0);
  EXPECT_GT(packets_sent("rxe1"), before1) << "ranks are spread over devices";
}

TEST(Verbs, LittleMoreThanTheDataIsSent) {
  EXPECT_EQ(run_world(2, over_verbs,
                      [](RankContext& context, whorlComm_t comm) {
                        constexpr int kOperations = 4;
                        constexpr std::size_t kBytes = 4 << 20;
                        std::vector<float> data(kBytes / sizeof(float));
                        double sent = HUGE_VAL; // the device may have to send packets again
                        for (int attempt = 0; attempt < 3; ++attempt) {
                          context.barrier();
                          const double before = bytes_sent();
                          context.barrier();
                          for (int i = 0; i < kOperations; ++i) {
                            ASSERT_EQ(failure(whorlAllReduce(data.data(), data.data(), data.size(),
                                                             whorlFloat32, whorlSum, comm, nullptr),
                                              comm),
                                      "");
                          }
                          context.barrier();
                          sent = std::min(sent, bytes_sent() - before);
                        }
                        // Each of two ranks sends n/2 of its n bytes to be summed, and n/2 sums.
                        const double least = 2.0 * kOperations * kBytes;
                        EXPECT_GE(sent, least);
                        EXPECT_LE(sent, 1.03 * least);
                      }),
            "");
}

TEST(Verbs, MemoryOfTheHeapIsExactAlsoWhenItsAddressIsUsedAgain) {
  EXPECT_EQ(
      run_world(3, over_verbs,
                [](RankContext& context, whorlComm_t comm) {
                  constexpr std::size_t kCount = 90'000;
                  void* previous = nullptr;
                  for (int round = 1; round <= 3; ++round) {
                    void* memory = nullptr;
                    ASSERT_EQ(whorlMemAlloc(&memory, kCount * sizeof(float)), whorlSuccess);
                    if (previous != nullptr) {
                      EXPECT_EQ(memory, previous);
                    }
                    previous = memory;
                    auto* const values = static_cast<float*>(memory);
                    for (std::size_t i = 0; i < kCount; ++i) {
                      values[i] =
                          static_cast<float>(static_cast<int>(i % 1000) * round + context.rank);
                    }
                    ASSERT_EQ(failure(whorlAllReduce(memory, memory, kCount, whorlFloat32, whorlSum,
                                                     comm, nullptr),
                                      comm),
                              "");
                    for (std::size_t i = 0; i < kCount; ++i) {
                      ASSERT_EQ(values[i],
                                static_cast<float>(3 * static_cast<int>(i % 1000) * round + 3));
                    }
                    ASSERT_EQ(whorlMemFree(memory), whorlSuccess);
                  }
                }),
      "");
}

TEST(Verbs, HostsAreConnectedByRdmaWithoutBeingAsked) {
  const std::uint64_t before = packets_sent();
  EXPECT_EQ(run_world(
                4,
                [](int rank) {
                  return Environment{{"WHORL_HOST_ID", rank < 2 ? "first" : "second"}};
                },
                [](RankContext& context, whorlComm_t comm) {
                  run_all(context, comm, {1, 10'000});
                }),
            "");
  EXPECT_GT(packets_sent(), before);
}

TEST(Verbs, ADisabledDeviceLeavesItToTcp) {
  const std::uint64_t before = packets_sent();
  EXPECT_EQ(
      run_world(
          2,
          [](int rank) {
            return Environment{{"WHORL_HOST_ID", std::to_string(rank)}, {"NCCL_IB_DISABLE", "1"}};
          },
          [](RankContext& context, whorlComm_t comm) { run_all(context, comm, {1000}); }),
      "");
  EXPECT_EQ(packets_sent(), before);
}

TEST(Verbs, AKilledRankIsNamedByAllOthers) { expect_a_killed_rank_is_named(over_verbs); }

TEST(Verbs, LostPacketsAreSentAgain) {
  ASSERT_EQ(std::system("tc qdisc add dev veth0 root netem loss 5%"), 0);
  EXPECT_EQ(run_world(
                2,
                [](int) {
                  return Environment{{"WHORL_TRANSPORTS", "verbs"}, {"WHORL_IB_TIMEOUT", "12"}};
                },
                [](RankContext& context, whorlComm_t comm) {
                  run_all(context, comm, {1, 5000});
                }),
            "");
  EXPECT_GT(packets_dropped("veth0"), 0);
  EXPECT_EQ(std::system("tc qdisc del dev veth0 root"), 0);
}

TEST(Verbs, ALostLinkIsAnErrorBeforeTheDeadline) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [](RankContext& context) {
    whorlComm_t comm = join(context, over_verbs(context.rank));
    ASSERT_NE(comm, nullptr);
    ASSERT_EQ(failure(sum(comm), comm), "");
    context.barrier();
    if (context.rank == 0) {
      ASSERT_EQ(std::system("ip link set veth0 down"), 0);
    }
    const auto began = std::chrono::steady_clock::now();
    whorlResult_t result = whorlSuccess;
    while (result == whorlSuccess) result = sum(comm);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15));
    const std::string text = whorlGetLastError(comm);
    EXPECT_NE(text.find("RDMA"), std::string::npos) << text;
    // By the look at the port, by the device itself, or by the other rank's device.
    EXPECT_TRUE(text.find("has lost its link") != std::string::npos ||
                text.find("has no link") != std::string::npos ||
                text.find("does not answer") != std::string::npos)
        << text;
    whorlCommDestroy(comm);
  });
  EXPECT_EQ(failures_of(outcomes), "");
  set_link_up();
}

/// Second pair of devices, rxe2 and rxe3.
class SecondPair {
 public:
  SecondPair() {
    run("ip link add veth2 mtu 4300 type veth peer name veth3 mtu 4300");
    for (const char* const name : {"2", "3"}) {
      run(std::string("ip link set veth") + name + " up");
      run(std::string("rdma link add rxe") + name + " type rxe netdev veth" + name);
    }
    for (int i = 0; i < 100 && !(has_address("rxe2") && has_address("rxe3")); ++i) {
      ::usleep(100'000);
    }
  }
  ~SecondPair() {
    for (const char* const name : {"2", "3"}) run(std::string("rdma link del rxe") + name);
    run("ip link del veth2");
  }
  SecondPair(const SecondPair&) = delete;
  SecondPair& operator=(const SecondPair&) = delete;

 private:
  static void run(const std::string& command) {
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
};

/// Link that is lost while ranks sum so many values, again and again.
class VerbsLostLink : public ::testing::TestWithParam<std::size_t> {};

TEST_P(VerbsLostLink, IsReplacedByTheNext) {
  const SecondPair second;
  const std::uint64_t before = packets_sent("rxe2");
  const auto outcomes = run_ranks(2, Mode::kProcesses, [](RankContext& context) {
    const char* const devices = context.rank == 0 ? "=rxe0,rxe2" : "=rxe1,rxe3";
    whorlComm_t comm = join(context, {{"WHORL_TRANSPORTS", "verbs"},
                                      {"WHORL_IB_HCA", devices},
                                      {"WHORL_IB_RAILS", "2"},      // suite.sh says 1
                                      {"WHORL_IB_TIMEOUT", "14"}}); // 67 ms
    ASSERT_NE(comm, nullptr);
    std::vector<std::int32_t> values(GetParam());
    for (std::int32_t round = 0; round < 40; ++round) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<std::int32_t>(i) * (context.rank + 1) + round;
      }
      if (round == 10 && context.rank == 0) {
        ASSERT_EQ(std::system("ip link set veth0 down"), 0);
      }
      ASSERT_EQ(failure(whorlAllReduce(values.data(), values.data(), values.size(), whorlInt32,
                                       whorlSum, comm, nullptr),
                        comm),
                "")
          << round;
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], static_cast<std::int32_t>(i) * 3 + 2 * round);
      }
    }
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
  EXPECT_GT(packets_sent("rxe2"), before);
  set_link_up();
}

INSTANTIATE_TEST_SUITE_P(Values, VerbsLostLink, ::testing::Values(2, 20'000, 200'000));

/// Tests of UCX over RDMA devices.
class UcxVerbs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const Status status = check_ucx(); !status.ok()) GTEST_SKIP() << status.message();
  }
};

TEST_F(UcxVerbs, EveryCollectiveIsExact) {
  const std::uint64_t before0 = packets_sent("rxe0"), before1 = packets_sent("rxe1");
  EXPECT_EQ(run_world(3, over_ucx,
                      [](RankContext& context, whorlComm_t comm) {
                        run_all(context, comm, {0, 1, 70'001});
                      }),
            "");
  EXPECT_GT(packets_sent("rxe0"), before0);
  EXPECT_GT(packets_sent("rxe1"), before1);
}

TEST_F(UcxVerbs, AKilledRankIsNamedByAllOthers) { expect_a_killed_rank_is_named(over_ucx); }

TEST(Verbs, TooLittleLockedMemoryIsSaid) {
  for (const char* const device : {"/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1"}) {
    ASSERT_EQ(::chmod(device, 0666), 0);
  }
  const auto outcomes = run_ranks(2, Mode::kProcesses, [&](RankContext& context) {
    const rlimit small{8 << 20, 8 << 20};
    ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &small), 0);
    ASSERT_EQ(::setuid(65534), 0);
    ::setenv("WHORL_TRANSPORTS", "verbs", 1);
    const whorlUniqueId id = shared_id(context);
    whorlComm_t comm = nullptr;
    EXPECT_NE(whorlCommInitRank(&comm, 2, id, context.rank), whorlSuccess);
    const std::string text = whorlGetLastError(nullptr);
    EXPECT_NE(text.find("ulimit -l unlimited"), std::string::npos) << text;
    context.barrier();
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

} // namespace
} // namespace whorl::test
