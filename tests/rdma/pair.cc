// Measures two endpoints over RDMA, as perftest's ib_write_lat and ib_write_bw measure writes:
//
//   rdma_pair latency BYTES MESSAGES      half a round trip, in microseconds: the shortest
//   rdma_pair bandwidth BYTES MESSAGES    10^6 bytes per second, from rank 0 to rank 1
//
// Each rank has a processor of its own, and a single rail, so that the ranks take different
// devices.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "tests/conformance/rig.h"
#include "transports/verbs/verbs.h"

namespace whorl::test {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Plan {
  bool latency = true;
  std::size_t bytes = 8;
  int messages = 1000;
};

/// Sends a message of which nothing but the place is filled in, as perftest does.
void send(Rig& rig, int peer, std::size_t bytes) {
  std::span<std::byte> slot;
  while (slot.empty()) {
    rig.wait([&] { return !(slot = rig.to(peer).try_reserve(bytes)).empty(); });
  }
  rig.to(peer).commit(bytes, {});
}

void receive(Rig& rig, int peer) {
  if (rig.receive(peer)) rig.to(peer).release();
}

void run_rank(RankContext& context, const TransportKind& kind, const Plan& plan) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<unsigned>(context.rank), &cpus);
  ::sched_setaffinity(0, sizeof cpus, &cpus);
  // For latency both spin, as perftest does. Its receiver of many writes sleeps meanwhile; here
  // both wait as in communicators.
  RigOptions options{.channels = 1, .slots = 16, .slot_bytes = 65536};
  if (plan.latency) options.spins = 100'000'000;
  Rig rig(context, kind, 1, options);
  const Status connected = rig.connect();
  if (!connected.ok()) throw std::runtime_error(connected.message());
  const int peer = 1 - context.rank;
  context.barrier();
  if (plan.latency) {
    std::vector<double> rounds;
    for (int i = 0; i < plan.messages; ++i) {
      const auto began = Clock::now();
      if (context.rank == 0) send(rig, peer, plan.bytes);
      receive(rig, peer);
      if (context.rank == 1) send(rig, peer, plan.bytes);
      rounds.push_back(us_since(began) / 2);
    }
    if (context.rank == 0) std::printf("%.2f\n", *std::min_element(rounds.begin(), rounds.end()));
  } else {
    const auto began = Clock::now();
    for (int i = 0; i < plan.messages; ++i) {
      if (context.rank == 0) {
        send(rig, peer, plan.bytes);
      } else {
        receive(rig, peer);
      }
    }
    rig.flush();
    const double us = us_since(began);
    if (context.rank == 0) {
      std::printf("%.2f\n", static_cast<double>(plan.bytes) * plan.messages / us);
    }
  }
  std::fflush(stdout);
  context.barrier();
}

} // namespace
} // namespace whorl::test

int main(int argc, char** argv) {
  using namespace whorl::test;
  if (argc != 4) {
    std::fputs("usage: rdma_pair latency|bandwidth BYTES MESSAGES\n", stderr);
    return 2;
  }
  const Plan plan{.latency = std::string_view(argv[1]) == "latency",
                  .bytes = std::min<std::size_t>(std::strtoul(argv[2], nullptr, 10), 65536),
                  .messages = std::max(std::atoi(argv[3]), 1)};
  ::setenv("WHORL_IB_RAILS", "1", 0);
  std::uint32_t rank = 0;
  const TransportKind kind{.name = "verbs", .make = [&rank] {
                             return whorl::make_verbs_transport({.number = rank, .nearest = {}});
                           }};
  const std::string failures =
      failures_of(run_ranks(2, Mode::kProcesses, [&](RankContext& context) {
        rank = static_cast<std::uint32_t>(context.rank);
        run_rank(context, kind, plan);
      }));
  std::fputs(failures.c_str(), stderr);
  return failures.empty() ? 0 : 1;
}
