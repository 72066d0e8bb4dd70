// Tests of buffers of a program that a heap adopts: registration moves their pages into the heap.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "memory/heap.h"
#include "memory/memory_map.h"
#include "tests/support/failing_system.h"
#include "tests/unit/memory/heap_buffers.h"

namespace whorl {
namespace {

using test::Buffer;
using test::FailingSystem;
using test::kPage;
using test::LargePages;
using test::make_heap;
using ::testing::HasSubstr;

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
  ASSERT_TRUE(mappings.ok());
  EXPECT_FALSE(mappings->empty());
  EXPECT_TRUE(std::all_of(mappings->begin(), mappings->end(), is_plain_memory));
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

TEST(Heap, LeavesAloneWhatLiesBehindABuffer) {
  LargePages large;
  const ScopedSystem scope(&large);
  const auto heap = make_heap(16);
  constexpr std::size_t kBytes = 100 << 10;
  Buffer memory(2 * LargePages::kPageBytes);
  memory.fill(7);
  const auto registration = heap->adopt(memory.data(), kBytes);
  ASSERT_TRUE(registration.ok()) << registration.status().message();
  ASSERT_NE(*registration, nullptr);
  EXPECT_EQ((*registration)->size, LargePages::kPageBytes);
  EXPECT_TRUE(memory.holds(7));
  EXPECT_TRUE(heap->release(*registration).ok());
  EXPECT_TRUE(memory.holds(7));
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

TEST(Heap, KeepsWhatIsLeftOfABufferThatWasUnmappedInPart) {
  const auto heap = make_heap(4);
  Buffer buffer(4 * kPage);
  buffer.fill(5);
  const auto registration = heap->adopt(buffer.data(), 4 * kPage);
  ASSERT_TRUE(registration.ok());
  ASSERT_NE(*registration, nullptr);
  ASSERT_EQ(sys().munmap(buffer.data() + kPage, kPage), 0);
  EXPECT_EQ(heap->release(*registration).code(), Code::kInvalidUsage);
  EXPECT_TRUE(heap->alloc(4 * kPage).ok()) << "the pages came back";
  for (const std::size_t page : {0U, 2U, 3U}) {
    EXPECT_EQ(buffer.data()[page * kPage], static_cast<std::byte>(5 + page * kPage % 251)) << page;
  }
}

TEST(Heap, LeavesABufferItsContentsAndProtection) {
  const auto heap = make_heap(4);
  Buffer buffer(4 * kPage);
  buffer.fill(5);
  const auto registration = heap->adopt(buffer.data(), 4 * kPage);
  ASSERT_TRUE(registration.ok());
  ASSERT_NE(*registration, nullptr);
  ASSERT_EQ(sys().mprotect(buffer.data() + kPage, kPage, PROT_READ), 0);
  ASSERT_EQ(sys().mprotect(buffer.data() + 2 * kPage, kPage, PROT_NONE), 0);
  const Status status = heap->release(*registration);
  EXPECT_TRUE(status.ok()) << status.message();
  const auto begin = reinterpret_cast<std::uintptr_t>(buffer.data());
  const auto access = [&](std::size_t page) {
    const auto mappings = mappings_over(begin + page * kPage, begin + (page + 1) * kPage);
    return mappings.ok() && !mappings->empty() ? mappings->front().access : std::string();
  };
  EXPECT_EQ(access(0), "rw-p");
  EXPECT_EQ(access(1), "r--p");
  EXPECT_EQ(access(2), "---p");
  EXPECT_EQ(access(3), "rw-p");
  ASSERT_EQ(sys().mprotect(buffer.data(), 4 * kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_TRUE(buffer.holds(5));
}

TEST(Heap, KeepsABufferRegisteredWhileItsMappingsCannotBeRead) {
  const auto heap = make_heap(4);
  Buffer buffer(4 * kPage);
  buffer.fill(5);
  const auto registration = heap->adopt(buffer.data(), 4 * kPage);
  ASSERT_TRUE(registration.ok());
  ASSERT_NE(*registration, nullptr);
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = files.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Status status = heap->release(*registration);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_EQ(status.code(), Code::kSystemError);
  EXPECT_THAT(status.message(), HasSubstr("cannot read /proc/self/maps: Too many open files"));
  std::uint64_t offset = 0;
  EXPECT_FALSE(heap->find(buffer.data(), 1, &offset)) << "the program may unmap it all the same";
  EXPECT_TRUE(buffer.holds(5));
  EXPECT_TRUE(heap->release(*registration).ok());
  EXPECT_TRUE(buffer.holds(5));
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
  const std::size_t pages = (std::size_t{64} << 20) / kPage + 2; // moved in two pieces
  const auto heap = make_heap(pages);
  Buffer buffer(pages * kPage);
  std::byte* const last = buffer.data() + (pages - 1) * kPage;
  *buffer.data() = std::byte{1};
  *last = std::byte{2};
  const auto registration = heap->adopt(buffer.data(), pages * kPage);
  ASSERT_TRUE(registration.ok());
  ASSERT_NE(*registration, nullptr);
  for (const int calls : {0, 4}) { // three move the first piece, and the fourth begins the second
    limited.left = calls;
    const Status refused = heap->release(*registration);
    EXPECT_EQ(refused.code(), Code::kSystemError) << calls;
    EXPECT_EQ(heap->used(), calls == 0 ? pages * kPage : 2 * kPage);
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
  EXPECT_TRUE(heap->alloc(pages * kPage).ok()) << "the pages came back";
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
