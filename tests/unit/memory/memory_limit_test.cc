#include "memory/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace whorl {
namespace {

using ::testing::HasSubstr;

/// Tree of files that stands for "/".
class FakeRoot {
 public:
  FakeRoot() {
    char name[] = "/tmp/whorl-root-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  FakeRoot(const FakeRoot&) = delete;
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path_ + file).parent_path());
    std::ofstream(path_ + file) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(MemoryBudget, IsTheLeastOfAllLimits) {
  FakeRoot root;
  EXPECT_EQ(memory_budget(root.path()).bytes, UINT64_MAX) << "nothing can be read";
  root.write("/proc/meminfo", "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable:  500 kB\n");
  EXPECT_EQ(physical_memory(root.path()), 1000U * 1024);
  EXPECT_EQ(memory_budget(root.path()).bytes, 500U * 1024);
  EXPECT_EQ(memory_budget(root.path()).limit, "MemAvailable");

  root.write("/proc/self/cgroup", "0::/a/b\n");
  root.write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  root.write("/sys/fs/cgroup/a/b/memory.current", "5\n");
  root.write("/sys/fs/cgroup/a/memory.max", "1000\n");
  root.write("/sys/fs/cgroup/a/memory.current", "900\n");
  root.write("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 50\n");
  EXPECT_EQ(memory_budget(root.path()).bytes, 150U) << "limit - (usage - droppable)";
  EXPECT_THAT(memory_budget(root.path()).limit, HasSubstr("/sys/fs/cgroup/a/memory.max"));

  root.write("/proc/self/cgroup", "9:cpu:/\n4:memory:/c\n");
  root.write("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "100\n");
  root.write("/sys/fs/cgroup/memory/c/memory.usage_in_bytes", "170\n");
  EXPECT_EQ(memory_budget(root.path()).bytes, 0U) << "over the limit";
}

} // namespace
} // namespace whorl
