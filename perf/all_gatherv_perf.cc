#include "perf/common/blocks.h"
#include "perf/common/collective.h"

namespace {

using namespace perf;

const Collective kAllGatherv{
    .name = "all_gatherv_perf",
    .in_place = true,
    .blocks_by_rank = true,
    .geometry =
        [](std::size_t count, const Place& p) {
          const BlockSizes sizes(count, p);
          return Geometry{sizes.of(p.rank), sizes.total(), sizes.start(p.rank), 0};
        },
    .expected =
        [](std::size_t count, const Place& p) {
          const BlockSizes sizes(count, p);
          return sizes.segments();
        },
    .run =
        [](const CollectiveCall& c) {
          const BlockSizes sizes(c.count, c.place);
          return XCCL(AllGatherv)(c.send, sizes.of(c.place.rank), c.recv, sizes.data(), nullptr,
                                  c.type, c.comm, c.stream);
        },
    .bus_factor = factor_others,
    .uneven = true,
};

} // namespace

int main(int argc, char** argv) { return perf::run_program(kAllGatherv, argc, argv); }
