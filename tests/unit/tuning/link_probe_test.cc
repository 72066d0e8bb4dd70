// Tests of the probe: its figures are plausible, every rank makes the same choice, and the error
// names a rank that dies during the probe.
#include "tuning/link_probe.h"

#include <gtest/gtest.h>

#include <signal.h>

#include <atomic>
#include <cstring>

#include "api/handle.h"
#include "tests/support/process_world.h"

namespace whorl {
namespace {

using test::Environment;
using test::failure;
using test::failures_of;
using test::Mode;
using test::RankContext;
using test::run_joined;
using test::run_ranks;
using test::ScopedEnv;
using test::ThreadWorld;

std::vector<PeerInfo> peers(const std::vector<std::uint64_t>& hosts) {
  std::vector<PeerInfo> all(hosts.size());
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) all[rank].host_key = hosts[rank];
  return all;
}

TEST(ProbePartners, AgreeAndAreNearAndFar) {
  for (const auto& hosts : std::vector<std::vector<std::uint64_t>>{
           {1}, {1, 1}, {1, 1, 1}, {1, 2}, {1, 1, 2, 2}, {2, 1, 2, 1, 2}, {1, 1, 1, 2, 3, 3, 4}}) {
    const auto all = peers(hosts);
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      const ProbePartners mine = probe_partners(all, static_cast<int>(rank));
      if (mine.near >= 0) {
        EXPECT_NE(mine.near, static_cast<int>(rank));
        EXPECT_EQ(hosts[static_cast<std::size_t>(mine.near)], hosts[rank]);
        EXPECT_EQ(probe_partners(all, mine.near).near, static_cast<int>(rank));
      }
      if (mine.far >= 0) {
        EXPECT_NE(hosts[static_cast<std::size_t>(mine.far)], hosts[rank]);
        EXPECT_EQ(probe_partners(all, mine.far).far, static_cast<int>(rank));
      }
    }
  }
  EXPECT_EQ(probe_partners(peers({1, 1, 2, 2}), 3).far, 1);
  EXPECT_EQ(probe_partners(peers({1, 1, 2, 2}), 3).near, 2);
  EXPECT_EQ(probe_partners(peers({1, 1, 1}), 2).near, -1);
}

/// Returns costs of one level within a host.
LinkCosts within_a_host(const Link& link = {}) {
  LinkCosts costs;
  costs.levels[0] = {.link = link, .scope = Scope::kHost};
  return costs;
}
/// Returns the costs of links after a merge for ranks of one host.
Link merged(const std::vector<ProbeResult>& results) {
  return merge(within_a_host(), results, 1).outermost().link;
}

TEST(Merge, OtherProgramsOnTheCoresDoNotCount) {
  std::vector<ProbeResult> results(2);
  for (ProbeResult& result : results) result.near.alpha_us = 3500;
  EXPECT_EQ(merged(results).alpha_us, 10);
}

TEST(Merge, TakesMediansAndKeepsEstimatesOfWhatWasNotMeasured) {
  LinkCosts estimates = within_a_host({.alpha_us = 7, .overhead_us = 0.5});
  std::vector<ProbeResult> results(4);
  EXPECT_EQ(merge(estimates, results, 2), estimates);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    results[rank].near = {.alpha_us = 1.0 + static_cast<double>(rank), .send_us_per_kib = 0.25};
  }
  results[3].near.alpha_us = 1e300; // longer than any message can take
  results[0].copy_us_per_kib = 0.125;
  const LinkCosts costs = merge(estimates, results, 2);
  EXPECT_EQ(costs.outermost().link.alpha_us, 2);
  EXPECT_EQ(costs.outermost().link.overhead_us, 0.5);
  EXPECT_EQ(costs.outermost().link.send_us_per_kib, 0.25);
  EXPECT_EQ(costs.copy_us_per_kib, 0.125);
  EXPECT_EQ(costs.gamma_us_per_kib, estimates.gamma_us_per_kib);

  estimates.levels[1] = {.link = {.beta_us_per_kib = 0.5}, .scope = Scope::kLeaf};
  estimates.levels[2] = {.link = {.beta_us_per_kib = 0.5}, .scope = Scope::kNetwork};
  estimates.count = 3;
  results[1].far = {.alpha_us = 50, .beta_us_per_kib = 0.75};
  const LinkCosts hosts = merge(estimates, results, 2);
  EXPECT_EQ(hosts.levels[0].link.alpha_us, 2);
  for (const std::size_t level : {1U, 2U}) EXPECT_EQ(hosts.levels[level].link.alpha_us, 50);
}

TEST(Merge, DividesWhatRanksOfAHostMeasuredAtTheSameTime) {
  LinkCosts estimates = within_a_host();
  estimates.levels[1] = {.link = {.beta_us_per_kib = 0.5}, .scope = Scope::kNetwork};
  estimates.count = 2;
  struct Case {
    double measured, senders, boundary, link;
  };
  for (const Case& one : {Case{0.75, 1, 0.75, 0.75}, // one rank a host
                          Case{0.75, 2, 0.375, 0.5}, // as quick alone as estimated
                          Case{4, 2, 2, 2},          // the boundary is slower than that
                          Case{0.25, 2, 0.125, 0.25}}) {
    std::vector<ProbeResult> results(2);
    for (ProbeResult& result : results) {
      result.far = {.alpha_us = 30, .beta_us_per_kib = one.measured};
    }
    const LinkCosts costs = merge(estimates, results, one.senders);
    EXPECT_EQ(costs.levels[0].boundary_us_per_kib, one.boundary) << one.measured;
    EXPECT_EQ(costs.outermost().link.beta_us_per_kib, one.link) << one.measured;
  }
}

TEST(Merge, CountsTheTurnsOfACore) {
  // Three ranks on one core and one on another take as long as two on each, if the cores are
  // equally fast.
  std::vector<ProbeResult> even(4), uneven(4);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    even[rank].near.alpha_us = uneven[rank].near.alpha_us = 0.25 + 5 * static_cast<double>(rank);
    even[rank].turn_us = 4;
    uneven[rank].turn_us = rank < 3 ? 6 : 2;
  }
  const double alpha = merged(even).alpha_us;
  EXPECT_DOUBLE_EQ(merged(uneven).alpha_us, alpha);
  EXPECT_GT(alpha, 2);
  EXPECT_LT(alpha, 4);
  // Over a network the time of the messages is added.
  for (ProbeResult& result : even) result.near.beta_us_per_kib = 0.5;
  EXPECT_GT(merged(even).alpha_us, 4);
}

TEST(Merge, MixesPartnersOfTheSameCoreAndOfOthers) {
  std::vector<ProbeResult> results(4);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    results[rank].near = {.alpha_us = 1, .send_us_per_kib = rank < 2 ? 0.02 : 0.04};
  }
  EXPECT_DOUBLE_EQ(merged(results).send_us_per_kib, 0.03);
  results[3].near.send_us_per_kib = 40; // as if it had lost its core
  EXPECT_NEAR(merged(results).send_us_per_kib, 0.08 / 3, 1e-12);
}

void expect_plausible(const Link& link) {
  EXPECT_GT(link.alpha_us, 0.005);
  EXPECT_LT(link.alpha_us, 1e5);
  const double moved = link.send_us_per_kib + link.receive_us_per_kib + link.beta_us_per_kib;
  EXPECT_GT(moved, 0.001);
  EXPECT_LT(moved, 1e4);
}

/// Runs the body in a process of its own: a process that has used the library cannot be forked.
std::string in_process(const std::function<void()>& body) {
  return failures_of(run_ranks(1, Mode::kProcesses, [&](RankContext&) { body(); }));
}

void threads_measure_and_agree() {
  const ScopedEnv env{{"WHORL_PROBE", "1"}};
  for (const int n : {1, 2, 3, 5}) {
    ThreadWorld world(n);
    const Communicator& first = *world.comm(0)->communicator;
    for (int rank = 0; rank < n; ++rank) {
      const Communicator& communicator = *world.comm(rank)->communicator;
      EXPECT_EQ(communicator.links(), first.links());
      EXPECT_EQ(std::memcmp(&communicator.selector(), &first.selector(), sizeof(Selector)), 0);
    }
    if (n == 1) continue;
    expect_plausible(first.links().outermost().link);
    EXPECT_GT(first.links().copy_us_per_kib, 0);
    EXPECT_GT(first.links().gamma_us_per_kib, 0);
    world.each([](int, whorlComm_t comm) {
      float one = 1, sum = 0;
      return failure(whorlAllReduce(&one, &sum, 1, whorlFloat32, whorlSum, comm, nullptr), comm);
    });
  }
}

TEST(Probe, ThreadsMeasureAndAgree) { EXPECT_EQ(in_process(threads_measure_and_agree), ""); }

void estimate_twice() {
  const ScopedEnv env{{"WHORL_PROBE", "0"}};
  std::optional<LinkCosts> links;
  for (int i = 0; i < 2; ++i) {
    ThreadWorld world(3);
    const LinkCosts now = world.comm(2)->communicator->links();
    EXPECT_EQ(now, links.value_or(now));
    links = now;
  }
}

TEST(Probe, OffMeansTheSameEstimatesEachTime) { EXPECT_EQ(in_process(estimate_twice), ""); }

TEST(Probe, ProcessesAgreeOverEachTransport) {
  for (const std::string transports : {"shm", "tcp", "shm,tcp"}) {
    EXPECT_EQ(run_joined(
                  4,
                  [&](int rank) {
                    // Only rank 0's setting of the probe counts.
                    Environment all{{"WHORL_TRANSPORTS", transports},
                                    {"WHORL_PROBE", rank == 0 ? "1" : "0"}};
                    if (transports == "shm,tcp") {
                      all.emplace_back("WHORL_HOST_ID", rank < 2 ? "a" : "b");
                    }
                    return all;
                  },
                  [](RankContext& context, whorlComm_t comm) {
                    struct {
                      Selector selector;
                      double alpha, inner;
                    } mine{}, first{};
                    const Communicator& communicator = *comm->communicator;
                    EXPECT_TRUE(communicator.probed());
                    std::memcpy(&mine.selector, &communicator.selector(), sizeof mine.selector);
                    mine.alpha = communicator.links().outermost().link.alpha_us;
                    mine.inner = communicator.links().levels[0].link.alpha_us;
                    expect_plausible(communicator.links().outermost().link);
                    expect_plausible(communicator.links().levels[0].link);
                    const auto all = context.allgather(std::as_bytes(std::span(&mine, 1)));
                    std::memcpy(&first, all[0].data(), sizeof first);
                    EXPECT_EQ(std::memcmp(&mine, &first, sizeof mine), 0);
                  }),
              "")
        << transports;
  }
}

TEST(Probe, SplitsMeasureIfTheirParentDid) {
  // All parts exchange the same rounds, whatever their ranks' environments say.
  for (const bool probes : {true, false}) {
    EXPECT_EQ(run_joined(
                  5,
                  [&](int rank) {
                    return Environment{{"WHORL_TIMEOUT_MS", "8000"},
                                       {"WHORL_PROBE", (rank == 0) == probes ? "1" : "0"}};
                  },
                  [&](const RankContext& context, whorlComm_t parent) {
                    whorlComm_t part = nullptr;
                    EXPECT_EQ(parent->communicator->probed(), probes);
                    // First two pairs and a single rank; then one pair, and no part for the others.
                    for (const int color : {context.rank / 2, context.rank < 2 ? 0 : -1}) {
                      ASSERT_EQ(failure(whorlCommSplit(parent, color, 0, &part, nullptr)), "");
                      ASSERT_EQ(part == nullptr, color < 0);
                      if (part == nullptr) continue;
                      const Communicator& communicator = *part->communicator;
                      EXPECT_EQ(communicator.probed(), probes && communicator.nranks() == 2);
                      EXPECT_EQ(whorlCommDestroy(part), whorlSuccess);
                    }
                  }),
              "")
        << probes;
  }
}

/// Clock that kills the process in the middle of the probe.
class DiesWhileProbing final : public System {
 public:
  std::uint64_t now_ns() noexcept override {
    // The exchange of empty messages reads the clock more often than the set-up before it.
    if (armed && ++calls > kCalls) raise(SIGKILL);
    return System::now_ns();
  }
  static constexpr int kCalls = 40;
  std::atomic<bool> armed{false};
  std::atomic<int> calls{0};
};

TEST(Probe, ARankThatDiesIsNamed) {
  for (const char* const transports : {"shm", "tcp"}) {
    const auto outcomes = run_ranks(3, Mode::kProcesses, [&](RankContext& context) {
      setenv("WHORL_TRANSPORTS", transports, 1);
      setenv("WHORL_PROBE", "1", 1);
      setenv("WHORL_TIMEOUT_MS", "8000", 1);
      // Ranks 0 and 2 are connected and measure while rank 1 dies.
      struct Gate final : Oob {
        explicit Gate(RankContext& c) : context(c) {}
        Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) override {
          // The board holds kBoardBytes at a time.
          for (std::size_t at = 0; at < mine.size(); at += RankContext::kBoardBytes) {
            const auto part =
                mine.subspan(at, std::min(RankContext::kBoardBytes, mine.size() - at));
            if (round == 3 && at == 0) return Status::error(Code::kRemoteError, "round 4");
            const auto parts = context.allgather(part);
            for (std::size_t r = 0; r < parts.size(); ++r) {
              std::memcpy(all.data() + r * mine.size() + at, parts[r].data(), part.size());
            }
          }
          if (++round == 3 && context.rank == 1) system.armed = true;
          return {};
        }
        RankContext& context;
        DiesWhileProbing system;
        int round = 0;
      } oob(context);
      const ScopedSystem scope(&oob.system);
      auto options = Options::from_environment();
      ASSERT_TRUE(options.ok());
      Identity identity;
      identity.job.fill(std::byte{static_cast<unsigned char>(transports[0])});
      identity.secret.fill(std::byte{7});
      const auto setup =
          set_up(oob, 3, context.rank, identity, *options, std::make_shared<CommError>());
      ASSERT_FALSE(setup.ok());
      if (context.rank == 0) {
        EXPECT_NE(setup.status().message().find("rank 1"), std::string::npos)
            << setup.status().message();
      }
    });
    EXPECT_TRUE(outcomes[1].killed);
    EXPECT_EQ(outcomes[0].failures, "") << transports;
    EXPECT_EQ(outcomes[2].failures, "") << transports;
  }
}

} // namespace
} // namespace whorl
