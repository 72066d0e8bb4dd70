// Memory that is lent to other processes.
#include "gpu/peer_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "tests/support/device.h"

namespace whorl::gpu {
namespace {

TEST(MemoryExports, KeepAFewHandlesAndGiveTheRightOnes) {
  const test::DeviceContext context;
  const test::DeviceQueue stream;
  constexpr std::size_t kMost = 4;
  MemoryExports exports(kMost);
  std::vector<std::unique_ptr<test::DeviceCopy>> buffers;
  for (int i = 0; i < 11; ++i) {
    buffers.push_back(std::make_unique<test::DeviceCopy>(std::vector<int>(100), stream.get()));
  }
  for (int round = 0; round < 2; ++round) {
    for (const auto& buffer : buffers) {
      const auto shared = exports.find(buffer->data() + 8, 40);
      ASSERT_TRUE(shared.has_value());
      CUipcMemHandle handle;
      ASSERT_EQ(cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(buffer->data())),
                CUDA_SUCCESS);
      EXPECT_EQ(std::memcmp(shared->handle.data(), &handle, sizeof handle), 0);
      EXPECT_EQ(shared->address - shared->allocation, 8U);
      EXPECT_LE(exports.known(), kMost);
    }
  }
}

} // namespace
} // namespace whorl::gpu
