#include "perf/common/blocks.h"
#include "perf/common/collective.h"

namespace {

using namespace perf;

const Collective kReduceScatterv{
    .name = "reduce_scatterv_perf",
    .reduces = true,
    .in_place = true,
    .blocks_by_rank = true,
    .geometry =
        [](std::size_t count, const Place& p) {
          const BlockSizes sizes(count, p);
          return Geometry{sizes.total(), sizes.of(p.rank), 0, sizes.start(p.rank)};
        },
    .expected =
        [](std::size_t count, const Place& p) {
          const BlockSizes sizes(count, p);
          return std::vector<Segment>{
              {0, sizes.of(p.rank), Segment::kReduced, sizes.start(p.rank)}};
        },
    .run =
        [](const CollectiveCall& c) {
          const BlockSizes sizes(c.count, c.place);
          return XCCL(ReduceScatterv)(c.send, c.recv, sizes.data(), c.type, c.op, c.comm, c.stream);
        },
    .bus_factor = factor_others,
    .uneven = true,
};

} // namespace

int main(int argc, char** argv) { return perf::run_program(kReduceScatterv, argc, argv); }
