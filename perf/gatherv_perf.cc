#include "perf/common/blocks.h"
#include "perf/common/collective.h"

namespace {

using namespace perf;

const Collective kGatherv{
    .name = "gatherv_perf",
    .has_root = true,
    .in_place = true,
    .blocks_by_rank = true,
    .geometry =
        [](std::size_t count, const Place& p) {
          const BlockSizes sizes(count, p);
          if (p.rank != p.root) return Geometry{sizes.of(p.rank), 0};
          return Geometry{sizes.of(p.rank), sizes.total(), sizes.start(p.rank), 0};
        },
    .expected =
        [](std::size_t count, const Place& p) {
          const BlockSizes sizes(count, p);
          return p.rank == p.root ? sizes.segments() : std::vector<Segment>{};
        },
    .run =
        [](const CollectiveCall& c) {
          const BlockSizes sizes(c.count, c.place);
          return XCCL(Gatherv)(c.send, sizes.of(c.place.rank), c.recv, sizes.data(), nullptr,
                               c.type, c.place.root, c.comm, c.stream);
        },
    .bus_factor = factor_others,
    .uneven = true,
};

} // namespace

int main(int argc, char** argv) { return perf::run_program(kGatherv, argc, argv); }
