#include "perf/common/collective.h"

namespace {

using namespace perf;

const Collective kGather{
    .name = "gather_perf",
    .has_root = true,
    .in_place = true,
    .blocks_by_rank = true,
    .geometry =
        [](std::size_t count, const Place& p) {
          if (p.rank != p.root) return Geometry{count, 0};
          return Geometry{count, count * static_cast<std::size_t>(p.nranks),
                          count * static_cast<std::size_t>(p.root), 0};
        },
    .expected =
        [](std::size_t count, const Place& p) {
          return p.rank == p.root ? block_from_each(count, p, 0) : std::vector<Segment>{};
        },
    .run =
        [](const CollectiveCall& c) {
          return XCCL(Gather)(c.send, c.recv, c.count, c.type, c.place.root, c.comm, c.stream);
        },
    .bus_factor = factor_others,
};

} // namespace

int main(int argc, char** argv) { return perf::run_program(kGather, argc, argv); }
