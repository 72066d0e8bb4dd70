#include "memory/heap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <random>
#include <thread>

#include "memory/memory_map.h"
#include "tests/support/failing_system.h"
#include "transports/shm/peer_heap.h"

namespace whorl {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kPage = 4096;

std::unique_ptr<Heap> make_heap(std::size_t pages) {
  auto heap = Heap::create(pages * kPage);
  EXPECT_TRUE(heap.ok()) << heap.status().message();
  return heap.ok() ? std::move(*heap) : nullptr;
}

/// Private memory that may be registered.
class Buffer {
 public:
  explicit Buffer(std::size_t size, int protection = PROT_READ | PROT_WRITE) : size_(size) {
    data_ = ::mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~Buffer() { ::munmap(data_, size_); }
  Buffer(const Buffer&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  void fill(std::uint8_t seed) {
    for (std::size_t i = 0; i < size_; ++i) data()[i] = static_cast<std::byte>(seed + i % 251);
  }
  bool holds(std::uint8_t seed) const {
    for (std::size_t i = 0; i < size_; ++i) {
      if (data()[i] != static_cast<std::byte>(seed + i % 251)) return false;
    }
    return true;
  }

 private:
  void* data_;
  std::size_t size_;
};

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

TEST(Heap, AdoptsWholePagesAndKeepsTheirContents) {
  const auto heap = make_heap(16);
  Buffer buffer(6 * kPage);
  buffer.fill(1);
  const auto registration = heap->adopt(buffer.data() + 100, 5 * kPage); // pages 1 to 4
  ASSERT_TRUE(registration.ok()) << registration.status().message();
  ASSERT_NE(*registration, nullptr);
  EXPECT_TRUE(buffer.holds(1));
  std::uint64_t offset = 0;
  EXPECT_TRUE(heap->find(buffer.data() + kPage, 4 * kPage, &offset));
  EXPECT_FALSE(heap->find(buffer.data(), kPage, &offset));
  EXPECT_FALSE(heap->find(buffer.data() + kPage, 4 * kPage + 1, &offset));
  // Later writes are visible through the memfd.
  buffer.fill(9);
  std::size_t size = 0;
  ASSERT_EQ(sys().file_size(heap->fd(), &size), 0);
  std::vector<std::byte> through(4 * kPage);
  ASSERT_TRUE(heap->find(buffer.data() + kPage, 1, &offset));
  ASSERT_EQ(::pread(heap->fd(), through.data(), through.size(), static_cast<off_t>(offset)),
            static_cast<ssize_t>(through.size()));
  EXPECT_EQ(std::memcmp(through.data(), buffer.data() + kPage, through.size()), 0);
  EXPECT_TRUE(heap->release(*registration).ok());
  EXPECT_TRUE(buffer.holds(9));
  EXPECT_FALSE(heap->find(buffer.data() + kPage, 1, &offset));
  const auto mappings = mappings_over(reinterpret_cast<std::uintptr_t>(buffer.data()),
                                      reinterpret_cast<std::uintptr_t>(buffer.data()) + 6 * kPage);
  EXPECT_FALSE(mappings.empty());
  EXPECT_TRUE(std::all_of(mappings.begin(), mappings.end(), is_plain_memory));
  EXPECT_TRUE(heap->alloc(16 * kPage).ok()) << "the pages came back";
}

TEST(Heap, LeavesAloneWhatItCannotMove) {
  const auto heap = make_heap(16);
  const auto unmoved = [&](void* data, std::size_t size) {
    const auto registration = heap->adopt(data, size);
    return registration.ok() && *registration == nullptr && heap->release(nullptr).ok();
  };
  Buffer buffer(2 * kPage);
  EXPECT_TRUE(unmoved(buffer.data() + 1, kPage)) << "no whole page";
  EXPECT_TRUE(unmoved(buffer.data(), 0));
  Buffer read_only(2 * kPage, PROT_READ);
  EXPECT_TRUE(unmoved(read_only.data(), 2 * kPage));
  const Fd file(sys().memfd_create("some-file"));
  ASSERT_EQ(sys().ftruncate(file.get(), 2 * kPage), 0);
  void* mapped = nullptr;
  ASSERT_EQ(
      sys().mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get(), 0, &mapped),
      0);
  EXPECT_TRUE(unmoved(mapped, 2 * kPage)) << "file-backed";
  sys().munmap(mapped, 2 * kPage);
  EXPECT_TRUE(unmoved(mapped, 2 * kPage)) << "not mapped at all";
  const auto own = heap->alloc(2 * kPage);
  ASSERT_TRUE(own.ok());
  EXPECT_TRUE(unmoved(*own, 2 * kPage)) << "in the heap already";
  Buffer larger(20 * kPage);
  EXPECT_TRUE(unmoved(larger.data(), 20 * kPage)) << "larger than the heap";
  EXPECT_EQ(heap->adopt(nullptr, 100).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(heap->adopt(buffer.data(), SIZE_MAX).status().code(), Code::kInvalidArgument);
}

TEST(Heap, CountsNestedRegistrations) {
  const auto heap = make_heap(16);
  Buffer buffer(8 * kPage);
  buffer.fill(3);
  const auto outer = heap->adopt(buffer.data(), 6 * kPage);
  const auto same = heap->adopt(buffer.data(), 6 * kPage);
  const auto inner = heap->adopt(buffer.data() + kPage, 2 * kPage);
  const auto crossing = heap->adopt(buffer.data() + 5 * kPage, 3 * kPage);
  ASSERT_TRUE(outer.ok() && same.ok() && inner.ok() && crossing.ok());
  EXPECT_EQ(*crossing, nullptr) << "half of it is registered already";
  EXPECT_TRUE(heap->release(*outer).ok());
  EXPECT_TRUE(heap->release(*same).ok());
  std::uint64_t offset = 0;
  EXPECT_TRUE(heap->find(buffer.data(), 6 * kPage, &offset));
  EXPECT_TRUE(heap->release(*inner).ok());
  EXPECT_FALSE(heap->find(buffer.data(), 6 * kPage, &offset));
  EXPECT_TRUE(buffer.holds(3));
  EXPECT_EQ(heap->release(*inner).code(), Code::kInvalidArgument) << "ended twice";
}

TEST(Heap, DoesNotWriteWhereABufferWasUnmapped) {
  const auto heap = make_heap(4);
  const Buffer buffer(2 * kPage);
  void* const address = buffer.data();
  const auto registration = heap->adopt(address, 2 * kPage);
  ASSERT_TRUE(registration.ok());
  ASSERT_NE(*registration, nullptr);
  void* other = nullptr; // another mapping, which replaces that of the buffer
  ASSERT_EQ(sys().mmap(address, 2 * kPage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0, &other),
            0);
  std::memset(other, 0x77, 2 * kPage);
  const Status status = heap->release(*registration);
  EXPECT_EQ(status.code(), Code::kInvalidUsage);
  EXPECT_THAT(status.message(), HasSubstr("deregister first, then free"));
  EXPECT_EQ(static_cast<std::byte*>(other)[kPage], std::byte{0x77});
  EXPECT_TRUE(heap->alloc(4 * kPage).ok()) << "the pages came back";
}

TEST(Heap, TellsItsPagesFromThoseOfAnotherHeap) {
  const auto heap = make_heap(4), another = make_heap(4); // of another rank, say
  const Buffer buffer(2 * kPage);
  void* const address = buffer.data();
  const auto registration = heap->adopt(address, 2 * kPage);
  ASSERT_TRUE(registration.ok());
  ASSERT_NE(*registration, nullptr);
  ASSERT_TRUE(another->alloc(4 * kPage).ok());
  void* other = nullptr;
  ASSERT_EQ(sys().mmap(address, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                       another->fd(), (*registration)->offset, &other),
            0);
  std::memset(other, 0x77, 2 * kPage);
  EXPECT_EQ(heap->release(*registration).code(), Code::kInvalidUsage);
  EXPECT_EQ(static_cast<std::byte*>(other)[kPage], std::byte{0x77});
}

TEST(Heap, MovesTheRestOfABufferByAnotherRelease) {
  // System whose mmap fails after a number of calls.
  class Limited final : public System {
   public:
    int left = INT_MAX;
    int mmap(void* hint, std::size_t size, int protection, int flags, int fd, std::size_t offset,
             void** address) noexcept override {
      return left-- > 0 ? System::mmap(hint, size, protection, flags, fd, offset, address)
                        : -ENOMEM;
    }
  } limited;
  const ScopedSystem scope(&limited);
  constexpr std::size_t kPages = (std::size_t{64} << 20) / kPage + 2; // moved in two pieces
  const auto heap = make_heap(kPages);
  Buffer buffer(kPages * kPage);
  std::byte* const last = buffer.data() + (kPages - 1) * kPage;
  *buffer.data() = std::byte{1};
  *last = std::byte{2};
  const auto registration = heap->adopt(buffer.data(), kPages * kPage);
  ASSERT_TRUE(registration.ok());
  ASSERT_NE(*registration, nullptr);
  for (const int calls : {0, 4}) { // three move the first piece, and the fourth begins the second
    limited.left = calls;
    const Status refused = heap->release(*registration);
    EXPECT_EQ(refused.code(), Code::kSystemError) << calls;
    EXPECT_EQ(heap->used(), calls == 0 ? kPages * kPage : 2 * kPage);
    std::uint64_t offset = 0;
    EXPECT_FALSE(heap->find(buffer.data(), 1, &offset)) << "peers would read it";
    EXPECT_EQ(*buffer.data(), std::byte{1});
    EXPECT_EQ(*last, std::byte{2});
  }
  limited.left = INT_MAX;
  const Status released = heap->release(*registration);
  EXPECT_TRUE(released.ok()) << released.message();
  EXPECT_EQ(*buffer.data(), std::byte{1});
  EXPECT_EQ(*last, std::byte{2});
  EXPECT_TRUE(heap->alloc(kPages * kPage).ok()) << "the pages came back";
}

TEST(Heap, RegistersMemoryOfMalloc) {
  const auto heap = make_heap(600);
  std::vector<std::uint32_t> numbers(500'000);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint32_t>(i);
  const std::vector<std::uint32_t> copy = numbers;
  const auto registration = heap->adopt(numbers.data(), numbers.size() * 4);
  ASSERT_TRUE(registration.ok());
  EXPECT_NE(*registration, nullptr);
  EXPECT_EQ(numbers, copy);
  EXPECT_TRUE(heap->release(*registration).ok());
  EXPECT_EQ(numbers, copy);
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

TEST(Heap, LeavesABufferAsItWasIfItCannotBeMoved) {
  FailingSystem failing;
  const ScopedSystem scope(&failing);
  const auto heap = make_heap(8);
  Buffer buffer(4 * kPage);
  buffer.fill(5);
  for (const char* call : {"fallocate", "mmap"}) {
    failing.fail(call, ENOMEM);
    const auto registration = heap->adopt(buffer.data(), 4 * kPage);
    ASSERT_TRUE(registration.ok()) << call;
    EXPECT_EQ(*registration, nullptr);
    failing.heal();
    EXPECT_TRUE(buffer.holds(5));
  }
  EXPECT_TRUE(heap->alloc(8 * kPage).ok()) << "nothing was lost";
}

TEST(PeerHeap, ShowsWhatTheOwnerWritesAndNothingBeyond) {
  const auto heap = Heap::create(std::size_t{256} << 20);
  ASSERT_TRUE(heap.ok());
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 3; ++i) {
    const auto memory = (*heap)->alloc(1 << 20);
    ASSERT_TRUE(memory.ok());
    blocks.push_back(static_cast<std::byte*>(*memory));
    std::memset(*memory, i + 1, 1 << 20);
  }
  const auto peer = PeerHeap::of(12345, Fd(::dup((*heap)->fd())));
  ASSERT_TRUE(peer.ok()) << peer.status().message();
  EXPECT_EQ(PeerHeap::of(12345, Fd(::dup((*heap)->fd())))->get(), peer->get()) << "not shared";
  EXPECT_EQ((*peer)->windows(), 0U);
  for (int i = 0; i < 3; ++i) {
    Descriptor descriptor{.offset = 0, .bytes = 1 << 20};
    ASSERT_TRUE((*heap)->find(blocks[static_cast<std::size_t>(i)], 1 << 20, &descriptor.offset));
    const std::byte* const data = (*peer)->at(descriptor);
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(data[(1 << 20) - 1], static_cast<std::byte>(i + 1));
  }
  EXPECT_EQ((*peer)->windows(), 1U);
  const Descriptor across{.offset = PeerHeap::kWindowBytes - 4096, .bytes = 8192};
  EXPECT_TRUE((*peer)->contains(across));
  EXPECT_NE((*peer)->at(across), nullptr);
  const std::uint64_t end = std::uint64_t{256} << 20;
  EXPECT_TRUE((*peer)->contains({.offset = end - 1, .bytes = 1}));
  EXPECT_NE((*peer)->at({.offset = end - 1, .bytes = 1}), nullptr);
  EXPECT_FALSE((*peer)->contains({.offset = end, .bytes = 1}));
  EXPECT_FALSE((*peer)->contains({.offset = 4096, .bytes = UINT64_MAX - 4095}));
  EXPECT_FALSE((*peer)->contains({.offset = UINT64_MAX, .bytes = 1}));
}

TEST(PeerHeap, RefusesMemoryThatCouldShrink) {
  const int fd = sys().memfd_create("unsealed");
  ASSERT_GE(fd, 0);
  ASSERT_EQ(sys().ftruncate(fd, 8192), 0);
  EXPECT_FALSE(PeerHeap::of(999, Fd(fd)).ok());
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

TEST(Heap, KnowsTheAllocationOrBufferThatHoldsAnAddress) {
  const auto heap = make_heap(16);
  auto* const a = static_cast<std::byte*>(*heap->alloc(2 * kPage));
  auto* const b = static_cast<std::byte*>(*heap->alloc(kPage));
  ASSERT_EQ(b, a + 2 * kPage);
  Buffer buffer(3 * kPage);
  HeapRegistration* const registration = *heap->adopt(buffer.data(), 3 * kPage);
  const struct {
    const void* pointer;
    std::size_t size;
    const void* begin;
    std::size_t bytes;
  } cases[] = {
      {a, 2 * kPage, a, 2 * kPage},
      {a + kPage + 5, 10, a, 2 * kPage},
      {b, 0, b, kPage},
      {a + kPage, 2 * kPage, nullptr, 0}, // over the end
      {b + kPage, 1, nullptr, 0},         // free
      {buffer.data() + kPage, 2 * kPage, buffer.data(), 3 * kPage},
      {buffer.data() + kPage, 2 * kPage + 1, nullptr, 0},
      {&cases, 1, nullptr, 0},
      {nullptr, 0, nullptr, 0},
  };
  for (const auto& c : cases) {
    const auto found = heap->extent(c.pointer, c.size);
    EXPECT_EQ(found.data(), c.begin);
    EXPECT_EQ(found.size(), c.bytes);
  }
  EXPECT_TRUE(heap->release(registration).ok());
  EXPECT_TRUE(heap->extent(buffer.data(), 1).empty());
  EXPECT_TRUE(heap->free(a).ok());
  EXPECT_TRUE(heap->extent(a, 1).empty());
}

TEST(Heap, TellsOfMemoryThatLeaves) {
  struct Watcher final : HeapWatcher {
    void leaving(std::span<const std::byte> memory) noexcept override { left = memory; }
    std::span<const std::byte> left;
  } watcher;
  const auto heap = make_heap(16);
  heap->watch(&watcher);
  auto* const a = static_cast<std::byte*>(*heap->alloc(100));
  EXPECT_TRUE(heap->free(a).ok());
  EXPECT_EQ(watcher.left.data(), a);
  EXPECT_EQ(watcher.left.size(), kPage);
  Buffer buffer(3 * kPage);
  HeapRegistration* const registration = *heap->adopt(buffer.data(), 3 * kPage);
  HeapRegistration* const again = *heap->adopt(buffer.data(), 3 * kPage);
  watcher.left = {};
  EXPECT_TRUE(heap->release(again).ok());
  EXPECT_TRUE(watcher.left.empty()) << "one reference is left";
  EXPECT_TRUE(heap->release(registration).ok());
  EXPECT_EQ(watcher.left.data(), buffer.data());
  EXPECT_EQ(watcher.left.size(), 3 * kPage);
  heap->unwatch(&watcher);
  watcher.left = {};
  EXPECT_TRUE(heap->free(*heap->alloc(100)).ok());
  EXPECT_TRUE(watcher.left.empty());
}

} // namespace
} // namespace whorl
