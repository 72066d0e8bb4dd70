#include "perf/common/collective.h"

namespace {

using namespace perf;

// Ping-pong of two ranks: a message to the other rank, and one back. The time is that of one
// message.
const Collective kLatency{
    .name = "latency_perf",
    .geometry = equal_sides,
    .expected =
        [](std::size_t count, const Place& p) {
          return std::vector<Segment>{{0, count, 1 - p.rank, 0}};
        },
    .run =
        [](const CollectiveCall& c) {
          const int other = 1 - c.place.rank;
          const auto send = [&] {
            return XCCL(Send)(c.send, c.count, c.type, other, c.comm, c.stream);
          };
          const auto receive = [&] {
            return XCCL(Recv)(c.recv, c.count, c.type, other, c.comm, c.stream);
          };
          const Result first = c.place.rank == 0 ? send() : receive();
          if (first != XCCL(Success)) return first;
          return c.place.rank == 0 ? receive() : send();
        },
    .bus_factor = factor_one,
    .only_ranks = 2,
    .trips = 2,
};

} // namespace

int main(int argc, char** argv) { return perf::run_program(kLatency, argc, argv); }
