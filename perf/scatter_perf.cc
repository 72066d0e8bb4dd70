#include "perf/common/collective.h"

namespace {

using namespace perf;

const Collective kScatter{
    .name = "scatter_perf",
    .has_root = true,
    .in_place = true,
    .blocks_by_rank = true,
    .geometry =
        [](std::size_t count, const Place& p) {
          if (p.rank != p.root) return Geometry{0, count};
          return Geometry{count * static_cast<std::size_t>(p.nranks), count, 0,
                          count * static_cast<std::size_t>(p.root)};
        },
    .expected =
        [](std::size_t count, const Place& p) {
          return std::vector<Segment>{{0, count, p.root, count * static_cast<std::size_t>(p.rank)}};
        },
    .run =
        [](const CollectiveCall& c) {
          return XCCL(Scatter)(c.send, c.recv, c.count, c.type, c.place.root, c.comm, c.stream);
        },
    .bus_factor = factor_others,
};

} // namespace

int main(int argc, char** argv) { return perf::run_program(kScatter, argc, argv); }
