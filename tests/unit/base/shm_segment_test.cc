#include "base/shm_segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "tests/support/failing_system.h"

namespace whorl {
namespace {

using test::FailingSystem;
using ::testing::HasSubstr;

TEST(ShmSegment, IsSharedSealedAndChecked) {
  auto segment = ShmSegment::create("test", 10'000);
  ASSERT_TRUE(segment.ok()) << segment.status().message();
  segment->data()[9'999] = std::byte{7};
  EXPECT_LT(sys().ftruncate(segment->fd(), 100), 0);
  auto other = ShmSegment::open(Fd(::dup(segment->fd())), 10'000);
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ(other->data()[9'999], std::byte{7});
  EXPECT_FALSE(ShmSegment::open(Fd(::dup(segment->fd())), 10'001).ok()) << "too small";
  const int unsealed = sys().memfd_create("test");
  ASSERT_EQ(sys().ftruncate(unsealed, 10'000), 0);
  EXPECT_FALSE(ShmSegment::open(Fd(unsealed), 10'000).ok());
  EXPECT_FALSE(ShmSegment::open(Fd(), 10'000).ok());
}

TEST(ShmSegment, ReportsWhatTheKernelRefuses) {
  FailingSystem failing;
  const ScopedSystem scope(&failing);
  for (const char* call : {"memfd_create", "ftruncate", "seal_size", "mmap"}) {
    failing.fail(call, EMFILE);
    EXPECT_THAT(ShmSegment::create("test", 4096).status().message(), HasSubstr("Too many open"))
        << call;
  }
  failing.fail("mmap", ENOMEM);
  EXPECT_THAT(ShmSegment::create("test", 4096).status().message(), HasSubstr("(ulimit -v)"));
}

} // namespace
} // namespace whorl
