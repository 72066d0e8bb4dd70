#include "perf/common/collective.h"

namespace {

using namespace perf;

const Collective kAllReduce{
    .name = "all_reduce_perf",
    .reduces = true,
    .in_place = true,
    .geometry = equal_sides,
    .expected =
        [](std::size_t count, const Place&) {
          return std::vector<Segment>{{0, count, Segment::kReduced, 0}};
        },
    .run =
        [](const CollectiveCall& c) {
          return XCCL(AllReduce)(c.send, c.recv, c.count, c.type, c.op, c.comm, c.stream);
        },
    .bus_factor = factor_twice_others,
};

} // namespace

int main(int argc, char** argv) { return perf::run_program(kAllReduce, argc, argv); }
