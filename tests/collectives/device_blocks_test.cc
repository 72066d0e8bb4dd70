// Tests of collectives whose blocks have different sizes, on device memory of threads;
// device_processes_blocks_test.cc has those of processes. Built with a pretended device, see
// tests/support/fake_cuda; with the real driver first in LD_LIBRARY_PATH it runs on a real one.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/device_blocks.h"
#include "tests/support/device_case.h"
#include "tests/support/pretended_device.h"
#include "tests/support/thread_world.h"
#include "tests/support/uneven_blocks.h"

namespace whorl::test {
namespace {

class DeviceBlocks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceBlocks, ::testing::Values(1, 2, 3, 4, 12));

TEST_P(DeviceBlocks, TakeOneKernel) {
  const int n = GetParam();
  run_on_device(n, [n](int rank, whorlComm_t comm, const DeviceQueue& stream) {
    return every_form({rank, n, comm, stream.get()});
  });
}

TEST(DeviceBlocksOfOneSize, MayBeGatheredByBothForms) {
  run_on_device(3, [](int rank, whorlComm_t comm, const DeviceQueue& stream) {
    return both_forms({rank, 3, comm, stream.get()});
  });
}

TEST(DeviceBlocksMemory, MayBeOnTheHostForSomeRanks) {
  run_on_device(3, [](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    if (rank != 1) return all_to_all_v({rank, 3, comm, stream.get()}, 3, 5000);
    AllToAllv exchange(random_matrix(3, 3, 5000), rank, 1);
    const whorlResult_t result = exchange.run(comm);
    return result != whorlSuccess ? failure(result, comm) : exchange.check();
  });
}

TEST(DeviceBlocksErrors, WrongCountsNameBothRanks) {
  run_on_device(3, [](int rank, whorlComm_t comm, const DeviceQueue& stream) {
    return wrong_counts({rank, 3, comm, stream.get()});
  });
}

} // namespace
} // namespace whorl::test
