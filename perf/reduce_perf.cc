#include "perf/common/collective.h"

namespace {

using namespace perf;

const Collective kReduce{
    .name = "reduce_perf",
    .reduces = true,
    .has_root = true,
    .in_place = true,
    .geometry =
        [](std::size_t count, const Place& p) {
          return Geometry{count, p.rank == p.root ? count : 0};
        },
    .expected =
        [](std::size_t count, const Place& p) {
          if (p.rank != p.root) return std::vector<Segment>{};
          return std::vector<Segment>{{0, count, Segment::kReduced, 0}};
        },
    .run =
        [](const CollectiveCall& c) {
          return XCCL(Reduce)(c.send, c.recv, c.count, c.type, c.op, c.place.root, c.comm,
                              c.stream);
        },
    .bus_factor = factor_one,
};

} // namespace

int main(int argc, char** argv) { return perf::run_program(kReduce, argc, argv); }
