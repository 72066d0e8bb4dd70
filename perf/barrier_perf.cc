#include "perf/common/collective.h"

namespace {

using namespace perf;

const Collective kBarrier{
    .name = "barrier_perf",
    .geometry =
        [](std::size_t, const Place&) {
          return Geometry{0, 0};
        },
    .expected = [](std::size_t, const Place&) { return std::vector<Segment>{}; },
    .run = [](const CollectiveCall& c) { return XCCL(Barrier)(c.comm, c.stream); },
    .bus_factor = factor_one,
    .moves_data = false,
};

} // namespace

int main(int argc, char** argv) { return perf::run_program(kBarrier, argc, argv); }
