// Tests of memory that is lent to other processes.
#include "gpu/peer_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "tests/support/device.h"
#include "tests/support/pretended_device.h"
#include "tests/support/run_ranks.h"

namespace whorl::gpu {
namespace {

/// Maps an allocation of another process several times, as if it were several.
void map_memory_of_another(std::span<const std::byte> handle) {
  MemoryImports imports(test::primary_context(0));
  const auto memory_at = [&](std::uint64_t begin, std::uint64_t bytes, std::uint64_t id) {
    SharedMemory memory{
        .address = begin, .bytes = bytes, .allocation = begin, .allocated = bytes, .id = id};
    std::memcpy(memory.handle.data(), handle.data(), handle.size());
    return memory;
  };
  const auto open = [&](const SharedMemory& memory, std::vector<std::uint64_t> keep) {
    bool busy = true;
    imports.make_room(1, memory, keep);
    EXPECT_TRUE(imports.open(1, memory, 1, busy).ok());
    EXPECT_FALSE(busy);
  };
  const std::uint64_t block = 8 * kDriverBlock;
  const SharedMemory old = memory_at(block, 512, 1), kept = memory_at(block + 512, 512, 2),
                     younger = memory_at(block + 1024, 512, 9),
                     far = memory_at(block + kDriverBlock, 512, 3);
  for (const SharedMemory& one : {old, kept, younger, far}) open(one, {1, 2, 3, 9});
  open(memory_at(block + 4096, 512, 5), {2, 5}); // in the same block of the driver
  EXPECT_FALSE(imports.has(1, old));
  EXPECT_TRUE(imports.has(1, kept));
  EXPECT_TRUE(imports.has(1, younger));
  EXPECT_TRUE(imports.has(1, far));
  EXPECT_EQ(imports.in_the_way(1, nullptr), 1U); // operation 1 may still use `old`
  imports.close_retired(0);
  EXPECT_EQ(imports.in_the_way(1, nullptr), 1U);
  imports.close_retired(1);
  EXPECT_EQ(imports.in_the_way(1, nullptr), 0U);
  open(memory_at(block + 1200, 5000, 4), {4}); // at the place of `younger`
  EXPECT_FALSE(imports.has(1, younger));
}

// Begins processes, so it comes before the tests that make threads of the driver.
TEST(MemoryImports, LetGoOfWhatMayHaveBeenFreed) {
  const auto body = [](test::RankContext& process) {
    const test::DeviceContext context;
    const test::DeviceQueue stream;
    const test::DeviceCopy buffer(std::vector<int>(100), stream.get());
    CUipcMemHandle handle;
    ASSERT_EQ(cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(buffer.data())),
              CUDA_SUCCESS);
    const auto handles = process.allgather(std::as_bytes(std::span(&handle, 1)));
    if (process.rank == 1) map_memory_of_another(handles[0]);
    process.barrier();
  };
  EXPECT_EQ(failures_of(run_ranks(2, test::Mode::kProcesses, body)), "");
}

TEST(MemoryImports, CloseNothingThatAResetHasClosed) {
  if (!test::device_is_pretended()) GTEST_SKIP() << "a real driver";
  const auto body = [](test::RankContext& process) {
    const test::DeviceContext context;
    CUdeviceptr buffer = 0;
    CUipcMemHandle handle{};
    ASSERT_EQ(cuMemAlloc(&buffer, 512), CUDA_SUCCESS);
    ASSERT_EQ(cuIpcGetMemHandle(&handle, buffer), CUDA_SUCCESS);
    const auto handles = process.allgather(std::as_bytes(std::span(&handle, 1)));
    if (process.rank == 1) {
      auto imports = std::make_unique<MemoryImports>(test::primary_context(0));
      SharedMemory memory{
          .address = buffer, .bytes = 512, .allocation = buffer, .allocated = 512, .id = 1};
      std::memcpy(memory.handle.data(), handles[0].data(), handles[0].size());
      bool busy = true;
      EXPECT_EQ(imports->open(0, memory, 1, busy).message(), "");
      CUcontext next = nullptr;
      EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
      EXPECT_EQ(cuDevicePrimaryCtxRetain(&next, 0), CUDA_SUCCESS);
      imports.reset();
      EXPECT_EQ(test::stale_calls(), 0);
    }
    process.barrier();
  };
  EXPECT_EQ(failures_of(run_ranks(2, test::Mode::kProcesses, body)), "");
}

TEST(MemoryExports, KeepAFewHandlesAndGiveTheRightOnes) {
  const test::DeviceContext context;
  const test::DeviceQueue stream;
  constexpr std::size_t kMaxKnown = 4;
  MemoryExports exports(kMaxKnown);
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
      EXPECT_LE(exports.known(), kMaxKnown);
    }
  }
}

TEST(SharedMemory, IsValidWhereTheBufferLiesInItsAllocation) {
  constexpr std::uint64_t kBegin = 4096, kBytes = 512;
  const auto valid = [](std::uint64_t address, std::uint64_t bytes, std::uint64_t allocation,
                        std::uint64_t allocated) {
    const SharedMemory memory{
        .address = address, .bytes = bytes, .allocation = allocation, .allocated = allocated};
    EXPECT_FALSE(memory.valid(bytes + 1));
    return memory.valid(bytes);
  };
  EXPECT_TRUE(valid(kBegin, kBytes, kBegin, kBytes));
  EXPECT_TRUE(valid(kBegin + kBytes, 0, kBegin, kBytes));
  EXPECT_FALSE(valid(kBegin - 1, 1, kBegin, kBytes));
  EXPECT_FALSE(valid(kBegin + 1, kBytes, kBegin, kBytes));
  EXPECT_FALSE(valid(kBegin + 1, UINT64_MAX - kBegin, kBegin, kBytes)) << "the end wraps";
  EXPECT_FALSE(valid(UINT64_MAX, 2, kBegin, kBytes));
  EXPECT_FALSE(valid(kBegin, 1, kBegin, UINT64_MAX)) << "the allocation's end wraps";
}

} // namespace
} // namespace whorl::gpu
