#include "perf/common/collective.h"

namespace {

using namespace perf;

int previous(const Place& p) { return (p.rank + p.nranks - 1) % p.nranks; }

// Exchange on a ring: every rank sends to the next rank and receives from the previous one.
const Collective kSendRecv{
    .name = "sendrecv_perf",
    .needs_group = true,
    .geometry = equal_sides,
    .expected =
        [](std::size_t count, const Place& p) {
          return std::vector<Segment>{{0, count, previous(p), 0}};
        },
    .run =
        [](const CollectiveCall& c) {
          const int next = (c.place.rank + 1) % c.place.nranks;
          const Result sent = XCCL(Send)(c.send, c.count, c.type, next, c.comm, c.stream);
          if (sent != XCCL(Success)) return sent;
          return XCCL(Recv)(c.recv, c.count, c.type, previous(c.place), c.comm, c.stream);
        },
    .bus_factor = factor_one,
};

} // namespace

int main(int argc, char** argv) { return perf::run_program(kSendRecv, argc, argv); }
