#include "perf/common/collective.h"

namespace {

using namespace perf;

const Collective kAllGather{
    .name = "all_gather_perf",
    .in_place = true,
    .blocks_by_rank = true,
    .geometry =
        [](std::size_t count, const Place& p) {
          return Geometry{count, count * static_cast<std::size_t>(p.nranks),
                          count * static_cast<std::size_t>(p.rank), 0};
        },
    .expected = [](std::size_t count, const Place& p) { return block_from_each(count, p, 0); },
    .run =
        [](const CollectiveCall& c) {
          return XCCL(AllGather)(c.send, c.recv, c.count, c.type, c.comm, c.stream);
        },
    .bus_factor = factor_others,
};

} // namespace

int main(int argc, char** argv) { return perf::run_program(kAllGather, argc, argv); }
