#include "memory/heap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "tests/support/failing_system.h"
#include "tests/unit/memory/heap_buffers.h"

namespace whorl {
namespace {

using test::Buffer;
using test::FailingSystem;
using test::kPage;
using test::make_heap;
using ::testing::HasSubstr;

TEST(Heap, GivesZeroedAlignedMemoryThatCanBeFound) {
  const auto heap = make_heap(16);
  const auto a = heap->alloc(1);
  const auto b = heap->alloc(3 * kPage + 1);
  ASSERT_TRUE(a.ok() && b.ok());
  auto* const bytes = static_cast<std::byte*>(*b);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes) % kPage, 0U);
  EXPECT_TRUE(std::all_of(bytes, bytes + 4 * kPage, [](std::byte x) { return x == std::byte{}; }));
  std::uint64_t offset = 0;
  EXPECT_TRUE(heap->find(bytes + 5, 10, &offset));
  EXPECT_EQ(offset, kPage + 5);
  EXPECT_FALSE(heap->find(bytes, 16 * kPage, &offset)) << "past the end of the heap";
  int local = 0;
  EXPECT_FALSE(heap->find(&local, sizeof local, &offset));
}

/// Heap that keeps up to 4 pages, and whom it tells.
class KeepingHeap : public ::testing::Test {
 protected:
  struct Watcher final : HeapWatcher {
    void leaving(std::span<const std::byte> memory) noexcept override { left += memory.size(); }
    std::size_t left = 0;
  };
  KeepingHeap() { heap->watch(&watcher); }
  void* alloc(std::size_t pages) {
    const auto memory = heap->alloc(pages * kPage);
    EXPECT_TRUE(memory.ok()) << memory.status().message();
    return memory.ok() ? *memory : nullptr;
  }
  void free(void* memory) { EXPECT_TRUE(heap->free(memory).ok()); }

  static constexpr std::size_t kPages = 256;
  Watcher watcher;
  std::unique_ptr<Heap> heap = make_heap(kPages);
};

TEST_F(KeepingHeap, GivesFreedMemoryWithoutASystemCall) {
  void* const a = alloc(2);
  std::memset(a, 7, 2 * kPage);
  free(a);
  EXPECT_FALSE(heap->free(a).ok()) << "it is free";
  EXPECT_EQ(heap->kept(), 2 * kPage);
  EXPECT_EQ(heap->used(), 0U);
  EXPECT_TRUE(heap->extent(a, 1).empty());
  FailingSystem failing;
  const ScopedSystem scope(&failing);
  for (const char* call : {"mmap", "fallocate", "punch_hole"}) {
    failing.fail(call, ENOMEM);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(alloc(2), a);
      free(a);
    }
    failing.heal();
  }
  EXPECT_EQ(watcher.left, 0U) << "the pages stay";
}

TEST_F(KeepingHeap, KeepsOnlyAPart) {
  free(alloc(5));
  EXPECT_EQ(heap->kept(), 0U);
  EXPECT_EQ(watcher.left, 5 * kPage);
  void* const a = alloc(3);
  void* const b = alloc(2);
  free(a);
  free(b); // there is room for one of them
  EXPECT_EQ(heap->kept(), 2 * kPage);
  EXPECT_EQ(watcher.left, 8 * kPage);
}

TEST_F(KeepingHeap, GivesBackWhatIsKeptIfAddressesAreShort) {
  void* const a = alloc(2);
  void* const b = alloc(2);
  free(a);
  free(b);
  EXPECT_EQ(heap->kept(), 4 * kPage);
  void* const all = alloc(kPages);
  EXPECT_EQ(heap->kept(), 0U);
  EXPECT_EQ(watcher.left, 4 * kPage);
  const auto* const bytes = static_cast<const std::byte*>(all);
  EXPECT_TRUE(std::all_of(bytes, bytes + 4 * kPage, [](std::byte x) { return x == std::byte{}; }));
  free(all);
  free(alloc(4));
  Buffer buffer(kPages * kPage);
  HeapRegistration* const registration = *heap->adopt(buffer.data(), kPages * kPage);
  EXPECT_NE(registration, nullptr) << "a registration takes what is kept";
  EXPECT_TRUE(heap->release(registration).ok());
}

TEST(Heap, ReusesFreedMemoryAsZeros) {
  const auto heap = make_heap(4);
  const auto all = heap->alloc(4 * kPage);
  ASSERT_TRUE(all.ok());
  std::memset(*all, 0xff, 4 * kPage);
  EXPECT_FALSE(heap->alloc(1).ok());
  EXPECT_TRUE(heap->free(*all).ok());
  const auto again = heap->alloc(4 * kPage);
  ASSERT_TRUE(again.ok()) << "neighbours were not joined";
  const auto* const bytes = static_cast<const std::byte*>(*again);
  EXPECT_TRUE(std::all_of(bytes, bytes + 4 * kPage, [](std::byte x) { return x == std::byte{}; }));
}

TEST(Heap, RefusesWhatItCannotGiveOrTake) {
  const auto heap = make_heap(4);
  EXPECT_TRUE(heap->alloc(0).ok());
  EXPECT_EQ(*heap->alloc(0), nullptr);
  EXPECT_TRUE(heap->free(nullptr).ok());
  const auto too_large = heap->alloc(5 * kPage);
  EXPECT_EQ(too_large.status().code(), Code::kSystemError);
  EXPECT_THAT(too_large.status().message(), HasSubstr("WHORL_HEAP_BYTES"));
  EXPECT_FALSE(heap->alloc(SIZE_MAX).ok());
  const auto a = heap->alloc(2 * kPage);
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(heap->free(static_cast<std::byte*>(*a) + kPage).code(), Code::kInvalidArgument);
  int local = 0;
  EXPECT_EQ(heap->free(&local).code(), Code::kInvalidArgument);
  EXPECT_TRUE(heap->free(*a).ok());
  const Status twice = heap->free(*a);
  EXPECT_EQ(twice.code(), Code::kInvalidArgument);
  EXPECT_THAT(twice.message(), HasSubstr("was not allocated from the shared heap"));
  EXPECT_FALSE(Heap::create(0).ok());
  EXPECT_FALSE(Heap::create(SIZE_MAX).ok());
}

TEST(Heap, RefusesMoreThanTheMachineHas) {
  const auto heap = Heap::create(std::size_t{1} << 45); // 32 TiB of addresses
  if (!heap.ok()) GTEST_SKIP() << heap.status().message();
  const auto memory = (*heap)->alloc(std::size_t{1} << 44);
  EXPECT_EQ(memory.status().code(), Code::kSystemError);
  EXPECT_THAT(memory.status().message(), HasSubstr("leaves; free memory or raise the limit"));
  EXPECT_TRUE((*heap)->alloc(kPage).ok()) << "still usable";
}

TEST(Heap, ServesThreads) {
  const auto heap = make_heap(256);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 100; ++i) {
        const std::size_t size = 1 + random() % (8 * kPage);
        const auto memory = heap->alloc(size);
        std::uint64_t offset = 0;
        if (!memory.ok() || !heap->find(*memory, size, &offset)) {
          ++failures;
          continue;
        }
        std::memset(*memory, t + 1, size);
        const auto* const bytes = static_cast<const std::byte*>(*memory);
        if (!std::all_of(bytes, bytes + size,
                         [&](std::byte x) { return x == static_cast<std::byte>(t + 1); })) {
          ++failures;
        }
        if (!heap->free(*memory).ok()) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_TRUE(heap->alloc(256 * kPage).ok()) << "everything came back";
}

TEST(Heap, ReportsWhatTheKernelRefuses) {
  FailingSystem failing;
  const ScopedSystem scope(&failing);
  for (const char* call : {"memfd_create", "ftruncate", "seal_size", "mmap"}) {
    failing.fail(call, ENOMEM);
    const auto heap = Heap::create(4 * kPage);
    EXPECT_EQ(heap.status().code(), Code::kSystemError) << call;
    EXPECT_THAT(heap.status().message(), HasSubstr("Cannot allocate memory"));
    failing.heal();
  }
  const auto heap = make_heap(4);
  for (const char* call : {"fallocate", "mmap"}) {
    failing.fail(call, ENOSPC);
    const auto memory = heap->alloc(kPage);
    EXPECT_EQ(memory.status().code(), Code::kSystemError) << call;
    EXPECT_THAT(memory.status().message(), HasSubstr("No space left"));
    failing.heal();
  }
  EXPECT_TRUE(heap->alloc(4 * kPage).ok()) << "nothing was lost";
}

TEST(ProcessHeap, IsEmptyInAChild) {
  const auto memory = heap_alloc(kPage);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::uint64_t offset = 0;
    const bool found = heap_find(*memory, kPage, &offset);
    const bool freed = heap_free(*memory).ok();
    const auto own = heap_alloc(kPage);
    ::_exit(!found && !freed && own.ok() && heap_find(*own, kPage, &offset) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(heap_free(*memory).ok());
}

TEST(ProcessHeap, IsNoLargerThanAFileMayBe) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto remedied = [](const Status& status) {
      return status.message().find("ulimit -f") != std::string::npos;
    };
    const bool refused = remedied(Heap::create(2 << 20).status());
    const auto half = heap_alloc(512 << 10);
    const auto more = heap_alloc(768 << 10);
    ::_exit(refused && half.ok() && !more.ok() && remedied(more.status()) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

} // namespace
} // namespace whorl
