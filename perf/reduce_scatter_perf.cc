#include "perf/common/collective.h"

namespace {

using namespace perf;

const Collective kReduceScatter{
    .name = "reduce_scatter_perf",
    .reduces = true,
    .in_place = true,
    .blocks_by_rank = true,
    .geometry =
        [](std::size_t count, const Place& p) {
          return Geometry{count * static_cast<std::size_t>(p.nranks), count, 0,
                          count * static_cast<std::size_t>(p.rank)};
        },
    .expected =
        [](std::size_t count, const Place& p) {
          return std::vector<Segment>{
              {0, count, Segment::kReduced, count * static_cast<std::size_t>(p.rank)}};
        },
    .run =
        [](const CollectiveCall& c) {
          return XCCL(ReduceScatter)(c.send, c.recv, c.count, c.type, c.op, c.comm, c.stream);
        },
    .bus_factor = factor_others,
};

} // namespace

int main(int argc, char** argv) { return perf::run_program(kReduceScatter, argc, argv); }
