#include "perf/common/blocks.h"
#include "perf/common/collective.h"

namespace {

using namespace perf;

const Collective kScatterv{
    .name = "scatterv_perf",
    .has_root = true,
    .in_place = true,
    .blocks_by_rank = true,
    .geometry =
        [](std::size_t count, const Place& p) {
          const BlockSizes sizes(count, p);
          if (p.rank != p.root) return Geometry{0, sizes.of(p.rank)};
          return Geometry{sizes.total(), sizes.of(p.rank), 0, sizes.start(p.rank)};
        },
    .expected =
        [](std::size_t count, const Place& p) {
          const BlockSizes sizes(count, p);
          return std::vector<Segment>{{0, sizes.of(p.rank), p.root, sizes.start(p.rank)}};
        },
    .run =
        [](const CollectiveCall& c) {
          const BlockSizes sizes(c.count, c.place);
          return XCCL(Scatterv)(c.send, sizes.data(), nullptr, c.recv, sizes.of(c.place.rank),
                                c.type, c.place.root, c.comm, c.stream);
        },
    .bus_factor = factor_others,
    .uneven = true,
};

} // namespace

int main(int argc, char** argv) { return perf::run_program(kScatterv, argc, argv); }
