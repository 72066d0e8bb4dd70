#include "base/system.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "base/shm_segment.h"

namespace whorl {
namespace {

TEST(System, MapsAndCountsPartsOfPages) {
  const std::size_t page = sys().page_bytes();
  void* memory = nullptr;
  ASSERT_EQ(sys().mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                       0, &memory),
            0);
  auto* const bytes = static_cast<std::byte*>(memory);
  std::size_t resident = 0;
  if (sys().populate(bytes, page) < 0)
    std::memset(bytes, 1, 3 * page); // before Linux 5.14
  else
    EXPECT_EQ(sys().populate(bytes + page + 64, page), 0);
  ASSERT_EQ(sys().resident(bytes, 4 * page, &resident), 0);
  EXPECT_EQ(resident, 3 * page);
  ASSERT_EQ(sys().resident(bytes + 2 * page + 64, page, &resident), 0);
  EXPECT_EQ(resident, page);
  sys().munmap(memory, 4 * page);
}

TEST(System, CountsNoMoreCacheThanTheProcessorsCanHave) {
  const auto cores = static_cast<std::size_t>(::sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_LE(sys().total_cache_bytes(), cores << 25);
}

TEST(System, RefusesALargeFileWhereItsLimitWouldEndTheProcess) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const bool fits = ShmSegment::create("test", 1 << 20).ok();
    const std::string text = ShmSegment::create("test", (1 << 20) + 1).status().message();
    const bool named = text.find("1048576 bytes") != std::string::npos &&
                       text.find("ulimit -f") != std::string::npos;
    ::_exit(fits && named ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

} // namespace
} // namespace whorl
