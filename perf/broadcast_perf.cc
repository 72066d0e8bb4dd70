#include "perf/common/collective.h"

namespace {

using namespace perf;

const Collective kBroadcast{
    .name = "broadcast_perf",
    .has_root = true,
    .in_place = true,
    .geometry =
        [](std::size_t count, const Place& p) {
          return Geometry{p.rank == p.root ? count : 0, count};
        },
    .expected =
        [](std::size_t count, const Place& p) {
          return std::vector<Segment>{{0, count, p.root, 0}};
        },
    .run =
        [](const CollectiveCall& c) {
          return XCCL(Broadcast)(c.send, c.recv, c.count, c.type, c.place.root, c.comm, c.stream);
        },
    .bus_factor = factor_one,
};

} // namespace

int main(int argc, char** argv) { return perf::run_program(kBroadcast, argc, argv); }
