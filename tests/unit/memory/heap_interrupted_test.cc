// Test of a kernel whose fallocate() does not get far between two signals.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "tests/unit/memory/heap_buffers.h"

namespace {

/// Number of calls that may be interrupted; above it they fail otherwise.
constexpr int kPatience = 1000;
std::atomic<bool> signals{false};
std::atomic<int> interruptions{0};

} // namespace

/// Replaces the C library's function by one that a signal interrupts, and undoes, if it has more
/// than 16 MiB to do.
extern "C" int fallocate(int fd, int mode, off_t offset, off_t size) {
  if (signals.load() && size > 16 << 20) {
    errno = ++interruptions <= kPatience ? EINTR : EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, size));
}

namespace whorl {
namespace {

using test::Buffer;
using test::kPage;
using test::make_heap;

TEST(Heap, GetsMemoryBetweenSignals) {
  constexpr std::size_t kBytes = 64 << 20;
  const auto heap = make_heap(2 * kBytes / kPage);
  signals.store(true);
  const auto memory = heap->alloc(kBytes);
  Buffer buffer(kBytes);
  const auto registration = heap->adopt(buffer.data(), kBytes);
  signals.store(false);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  ASSERT_TRUE(registration.ok());
  ASSERT_NE(*registration, nullptr);
  EXPECT_TRUE(heap->release(*registration).ok());
  EXPECT_TRUE(heap->free(*memory).ok());
}

} // namespace
} // namespace whorl
