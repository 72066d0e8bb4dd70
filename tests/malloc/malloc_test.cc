// The allocation functions of libwhorl_malloc.so, which is preloaded into this program.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "whorl/whorl.h"

namespace {

constexpr std::size_t kLarge = 64 << 10;

/// Returns whether the pages at `memory` belong to the heap that peers can map.
bool shared(const void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2 && begin <= address &&
        address < end) {
      return line.find("whorl-heap") != std::string::npos;
    }
  }
  return false;
}

void fill(void* memory, std::size_t bytes, unsigned seed) {
  for (std::size_t i = 0; i < bytes; ++i)
    static_cast<unsigned char*>(memory)[i] = static_cast<unsigned char>(seed + i % 251);
}

bool holds(const void* memory, std::size_t bytes, unsigned seed) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if (static_cast<const unsigned char*>(memory)[i] != static_cast<unsigned char>(seed + i % 251))
      return false;
  }
  return true;
}

/// Runs `body` in a child of fork(), and returns its exit status.
template <typename Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

class Malloc : public ::testing::Test {
 protected:
  void SetUp() override {
    Dl_info info{};
    ASSERT_NE(::dladdr(reinterpret_cast<void*>(::dlsym(RTLD_DEFAULT, "malloc")), &info), 0);
    ASSERT_NE(std::string(info.dli_fname).find("libwhorl_malloc"), std::string::npos)
        << "run with LD_PRELOAD=libwhorl_malloc.so";
  }
};

TEST_F(Malloc, OnlyLargeBlocksAreShared) {
  void* const small = std::malloc(kLarge - 1);
  void* const large = std::malloc(kLarge);
  EXPECT_FALSE(shared(small));
  EXPECT_TRUE(shared(large));
  EXPECT_GE(malloc_usable_size(large), kLarge);
  EXPECT_GE(malloc_usable_size(small), kLarge - 1);
  std::free(small);
  std::free(large);
  std::vector<double> vector(kLarge);
  EXPECT_TRUE(shared(vector.data()));
}

TEST_F(Malloc, AlignmentsAreKept) {
  for (const std::size_t alignment : {16u, 64u, 4096u, 8192u, 65536u}) {
    void* a = nullptr;
    ASSERT_EQ(posix_memalign(&a, alignment, 2 * kLarge), 0);
    void* const b = std::aligned_alloc(alignment, 2 * kLarge);
    void* const c = memalign(alignment, 2 * kLarge);
    for (void* const memory : {a, b, c}) {
      ASSERT_NE(memory, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % alignment, 0u);
      EXPECT_EQ(shared(memory), alignment <= 4096);
      std::free(memory);
    }
  }
  void* untouched = &untouched;
  EXPECT_EQ(posix_memalign(&untouched, 24, 2 * kLarge), EINVAL);
  EXPECT_EQ(untouched, &untouched);
}

TEST_F(Malloc, ClearedBlocksAreZeroAfterUse) {
  for (int i = 0; i < 3; ++i) {
    auto* const bytes = static_cast<unsigned char*>(std::calloc(kLarge, 3));
    ASSERT_TRUE(shared(bytes));
    for (std::size_t k = 0; k < 3 * kLarge; ++k) ASSERT_EQ(bytes[k], 0) << k;
    fill(bytes, 3 * kLarge, 1);
    std::free(bytes);
  }
}

TEST_F(Malloc, ImpossibleSizesFail) {
  volatile std::size_t most = SIZE_MAX;
  errno = 0;
  EXPECT_EQ(std::malloc(most), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(std::calloc(most, 2), nullptr);
  EXPECT_EQ(std::malloc(most / 2 + 1), nullptr);
  void* const memory = std::malloc(kLarge);
  fill(memory, kLarge, 3);
  void* volatile kept = memory; // the compiler believes that realloc() always succeeds
  EXPECT_EQ(std::realloc(kept, most), nullptr);
  errno = 0;
  EXPECT_EQ(reallocarray(kept, most, 2), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_TRUE(holds(kept, kLarge, 3));
  std::free(kept);
}

TEST_F(Malloc, ReallocKeepsContents) {
  void* memory = std::malloc(100);
  fill(memory, 100, 9);
  std::size_t before = 100;
  for (const std::size_t bytes : {kLarge, 4 * kLarge, 4 * kLarge + 1, 64 * kLarge, 2 * kLarge,
                                  std::size_t{1000}, 8 * kLarge}) {
    memory = std::realloc(memory, bytes);
    ASSERT_NE(memory, nullptr);
    ASSERT_TRUE(holds(memory, std::min(before, bytes), 9)) << before << " to " << bytes;
    ASSERT_GE(malloc_usable_size(memory), bytes);
    ASSERT_EQ(shared(memory), bytes >= kLarge) << bytes;
    fill(memory, bytes, 9);
    before = bytes;
  }
  std::free(memory);
}

TEST_F(Malloc, FreeKeepsErrno) {
  void* const memory = std::malloc(kLarge);
  errno = 1234;
  std::free(memory);
  EXPECT_EQ(errno, 1234);
}

TEST_F(Malloc, OtherPageAlignedMemoryIsNotOurs) {
  void* const pages = valloc(16384);
  ASSERT_EQ(reinterpret_cast<std::uintptr_t>(pages) % 4096, 0u);
  EXPECT_GE(malloc_usable_size(pages), 16384u);
  std::free(pages);
}

TEST_F(Malloc, ThreadsAllocateAndFree) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([t, &wrong] {
      std::minstd_rand random(t);
      struct Block {
        void* memory;
        std::size_t bytes;
        unsigned seed;
      };
      std::vector<Block> blocks;
      for (unsigned i = 0; i < 300; ++i) {
        const std::size_t bytes = random() % (4 * kLarge) + 1;
        blocks.push_back({std::malloc(bytes), bytes, i});
        fill(blocks.back().memory, bytes, i);
        if (blocks.size() > 8) {
          std::swap(blocks[random() % blocks.size()], blocks.back());
          const Block block = blocks.back();
          wrong += !holds(block.memory, block.bytes, block.seed);
          std::free(block.memory);
          blocks.pop_back();
        }
      }
      for (const Block& block : blocks) {
        wrong += !holds(block.memory, block.bytes, block.seed);
        std::free(block.memory);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Malloc, ForkCopiesBlocks) {
  void* const ours = std::malloc(kLarge);
  void* const freed = std::malloc(kLarge);
  fill(ours, kLarge, 5);
  fill(freed, kLarge, 6);
  int turns[2];
  ASSERT_EQ(::pipe(turns), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    char go = 0;
    if (::read(turns[0], &go, 1) != 1) ::_exit(9); // the parent has written to its blocks
    if (shared(ours)) ::_exit(1);
    if (!holds(ours, kLarge, 5) || !holds(freed, kLarge, 6)) ::_exit(2);
    fill(ours, kLarge, 7);
    std::free(freed);
    void* const more = std::malloc(kLarge); // from a heap of the child's own
    if (!shared(more)) ::_exit(3);
    fill(more, kLarge, 8);
    const int grandchild = in_child([&] {
      const bool right = holds(ours, kLarge, 7) && holds(more, kLarge, 8) && !shared(more);
      fill(more, kLarge, 1);
      fill(ours, kLarge, 1);
      return right ? 0 : 4;
    });
    if (grandchild != 0 || !holds(ours, kLarge, 7) || !holds(more, kLarge, 8)) ::_exit(5);
    std::free(more);
    std::free(std::realloc(ours, 3 * kLarge));
    ::_exit(0);
  }
  fill(ours, kLarge, 50);
  fill(freed, kLarge, 60);
  ASSERT_EQ(::write(turns[1], "g", 1), 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << std::hex << status;
  EXPECT_TRUE(holds(ours, kLarge, 50));
  EXPECT_TRUE(holds(freed, kLarge, 60));
  EXPECT_TRUE(shared(ours));
  std::free(ours);
  std::free(freed);
  ::close(turns[0]);
  ::close(turns[1]);
}

TEST_F(Malloc, ThreadsFork) {
  std::atomic<bool> done{false};
  std::thread worker([&done] {
    while (!done) std::free(std::malloc(2 * kLarge));
  });
  for (int i = 0; i < 30; ++i) {
    void* const memory = std::malloc(kLarge);
    fill(memory, kLarge, static_cast<unsigned>(i));
    EXPECT_EQ(in_child([&] {
                std::free(std::malloc(kLarge));
                return holds(memory, kLarge, static_cast<unsigned>(i)) ? 0 : 1;
              }),
              0);
    std::free(memory);
  }
  done = true;
  worker.join();
}

/// Ranks of a communicator, forked from a parent with large blocks, send blocks of malloc().
TEST_F(Malloc, OperationsReadBlocksInPlace) {
  constexpr std::size_t kCount = 1 << 20;
  void* const before = std::malloc(kLarge);
  whorlUniqueId id;
  ASSERT_EQ(whorlGetUniqueId(&id), whorlSuccess);
  const auto rank = [&](int number) {
    whorlComm_t comm = nullptr;
    if (whorlCommInitRank(&comm, 2, id, number) != whorlSuccess) return 1;
    std::vector<float> in(kCount, static_cast<float>(number + 1)), out(kCount);
    for (int i = 0; i < 3; ++i) {
      if (whorlAllReduce(in.data(), out.data(), kCount, whorlFloat32, whorlSum, comm, nullptr) !=
          whorlSuccess)
        return 2;
    }
    for (const float value : out) {
      if (value != 3) return 3;
    }
    std::uint64_t zero_copy = 0;
    if (whorlCommMemStats(comm, whorlStatMessagesZeroCopy, &zero_copy) != whorlSuccess) return 4;
    whorlCommDestroy(comm);
    return zero_copy > 0 ? 0 : 5;
  };
  const pid_t second = fork();
  if (second == 0) ::_exit(rank(1));
  EXPECT_EQ(in_child([&] { return rank(0); }), 0);
  int status = -1;
  ASSERT_EQ(::waitpid(second, &status, 0), second);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << std::hex << status;
  std::free(before);
}

} // namespace
