// Tests that communicators leave nothing behind: many are made, used, split, shrunk and destroyed,
// and the process grows in nothing.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/descriptors.h"
#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

constexpr int kRanks = 3;

/// Resources of this process that communicators take.
struct Resources {
  int descriptors = 0;
  std::size_t threads = 0, mappings = 0;
  std::size_t heap_bytes = 0;     ///< bytes of the C library's heap that are in use
  std::size_t resident_bytes = 0; ///< memory of the process, shared memory included
};

std::size_t lines_of(const char* path) {
  std::ifstream file(path);
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

Resources resources() {
  Resources now;
  now.descriptors = open_descriptors();
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  now.threads = static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
  now.mappings = lines_of("/proc/self/maps");
  const struct mallinfo2 heap = ::mallinfo2();
  now.heap_bytes = heap.uordblks + heap.hblkhd;
  std::ifstream statm("/proc/self/statm");
  std::size_t size = 0, resident = 0;
  statm >> size >> resident;
  now.resident_bytes = resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return now;
}

/// Waits until this process has no more threads and descriptors than `before`, for 10 s at most.
/// The thread at which ranks meet ends by itself soon after the ranks have hung up, and nobody
/// waits for the thread.
Resources resources_at_rest(const Resources& before) {
  Resources now = resources();
  for (int i = 0; i < 1000; ++i) {
    if (now.threads <= before.threads && now.descriptors <= before.descriptors) break;
    ::usleep(10'000);
    now = resources();
  }
  return now;
}

/// Checks that a process has grown in nothing; memory, which depends on how allocations lie, may
/// grow by less than a cycle would leave behind if it left its smallest part.
void expect_no_growth(const Resources& before, const Resources& after, int cycles) {
  EXPECT_LE(after.descriptors, before.descriptors);
  EXPECT_LE(after.threads, before.threads);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // which keep freed memory
  EXPECT_LE(after.mappings, before.mappings + 16); // arenas of the C library split and merge
  const std::size_t allowed = static_cast<std::size_t>(cycles) * 32 + (1 << 20);
  EXPECT_LE(after.heap_bytes, before.heap_bytes + allowed);
  EXPECT_LE(after.resident_bytes, before.resident_bytes + allowed + (8 << 20));
#else
  static_cast<void>(cycles);
#endif
}

/// Uses a communicator, and parts of it, and destroys all. Returns the first failure.
std::string use_up(int rank, whorlComm_t comm) {
  std::vector<float> data(2000, 1);
  const auto sum = [&](whorlComm_t on) {
    return failure(
        whorlAllReduce(data.data(), data.data(), data.size(), whorlFloat32, whorlMax, on, nullptr),
        on);
  };
  if (auto text = sum(comm); !text.empty()) return "allreduce: " + text;
  whorlComm_t part = nullptr, rest = nullptr;
  if (auto text = failure(whorlCommSplit(comm, rank % 2, rank, &part, nullptr), comm);
      !text.empty()) {
    return "split: " + text;
  }
  if (auto text = sum(part); !text.empty()) return "allreduce of a part: " + text;
  if (whorlCommDestroy(part) != whorlSuccess) return "destroy of a part";
  const int excluded = 1;
  if (rank != excluded) {
    if (auto text = failure(whorlCommShrink(comm, &excluded, 1, &rest, nullptr, 0)); !text.empty())
      return "shrink: " + text;
    if (auto text = sum(rest); !text.empty()) return "allreduce of the rest: " + text;
    if (whorlCommAbort(rest) != whorlSuccess) return "abort of the rest";
  }
  return whorlCommDestroy(comm) == whorlSuccess ? "" : "destroy";
}

/// Makes and uses up `cycles` communicators on `transport`, and looks for growth after the first
/// tenth, when all that is kept for the life of a process is there.
void live(const std::string& transport, int cycles) {
  const auto outcomes =
      run_ranks(kRanks, Mode::kProcesses,
                [&](RankContext& context) {
                  Resources before;
                  for (int cycle = 0; cycle < cycles; ++cycle) {
                    whorlComm_t comm = join(context, {{"WHORL_TRANSPORTS", transport}});
                    ASSERT_NE(comm, nullptr) << "cycle " << cycle;
                    ASSERT_EQ(use_up(context.rank, comm), "") << "cycle " << cycle;
                    context.barrier();
                    if (cycle == cycles / 10) before = resources();
                  }
                  expect_no_growth(before, resources_at_rest(before), cycles - cycles / 10);
                },
                {.timeout_ns = 900'000'000'000});
  EXPECT_EQ(failures_of(outcomes), "") << transport;
}

TEST(Lifecycle, LeavesNothingBehind) {
  live("shm", 60);
  live("tcp", 30);
}

/// LIFECYCLE_CYCLES=10000 takes some minutes.
TEST(Lifecycle, LeavesNothingBehindInManyCyclesFull) {
  const char* const given = std::getenv("LIFECYCLE_CYCLES");
  live("shm", given == nullptr ? 1500 : std::atoi(given));
}

TEST(Lifecycle, LeavesNothingBehindBetweenHostsFull) { live("tcp", 1000); }

} // namespace
} // namespace whorl::test
