#include "perf/common/collective.h"

namespace {

using namespace perf;

const Collective kAlltoAll{
    .name = "alltoall_perf",
    .blocks_by_rank = true,
    .geometry =
        [](std::size_t count, const Place& p) {
          const std::size_t all = count * static_cast<std::size_t>(p.nranks);
          return Geometry{all, all};
        },
    .expected =
        [](std::size_t count, const Place& p) {
          return block_from_each(count, p, count * static_cast<std::size_t>(p.rank));
        },
    .run =
        [](const CollectiveCall& c) {
          return XCCL(AlltoAll)(c.send, c.recv, c.count, c.type, c.comm, c.stream);
        },
    .bus_factor = factor_others,
};

} // namespace

int main(int argc, char** argv) { return perf::run_program(kAlltoAll, argc, argv); }
