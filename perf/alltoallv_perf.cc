#include "perf/common/blocks.h"
#include "perf/common/collective.h"

namespace {

using namespace perf;

const Collective kAlltoAllv{
    .name = "alltoallv_perf",
    .blocks_by_rank = true,
    .geometry =
        [](std::size_t count, const Place& p) {
          const BlockSizes sizes(count, p);
          return Geometry{sizes.total(), sizes.total()};
        },
    .expected =
        [](std::size_t count, const Place& p) {
          const BlockSizes sizes(count, p);
          std::vector<Segment> all;
          const BlockSizes own = sizes.rotated(p.rank);
          for (int from = 0; from < p.nranks; ++from) {
            all.push_back({own.start(from), own.of(from), from, sizes.rotated(from).start(p.rank)});
          }
          return all;
        },
    .run =
        [](const CollectiveCall& c) {
          const BlockSizes sizes(c.count, c.place);
          const BlockSizes own = sizes.rotated(c.place.rank);
          return XCCL(AlltoAllv)(c.send, own.data(), nullptr, c.recv, own.data(), nullptr, c.type,
                                 c.comm, c.stream);
        },
    .bus_factor = factor_others,
    .uneven = true,
};

} // namespace

int main(int argc, char** argv) { return perf::run_program(kAlltoAllv, argc, argv); }
