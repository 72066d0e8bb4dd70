// Tests that any failed allocation gives an error, or none, but never ends the process.
#include <execinfo.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <vector>

#include "tests/support/shared_array.h"
#include "whorl/whorl.h"

namespace {

/// Allocation of a process: numbers from 0 of the thread, in the order of their first allocations,
/// and of the allocation in this thread. So which one it is does not depend on what threads do at
/// the same time.
struct Number {
  int thread = -1;
  long allocation = 0;
};

constexpr int kMostThreads = 32;

std::atomic<bool> counting{false};
Number failing;                      ///< the allocation that fails, of no thread: none
std::atomic<int> threads{0};         ///< those that have allocated
std::atomic<long>* counts = nullptr; ///< of allocations, by thread; in memory that processes share

void* allocate(std::size_t bytes) {
  if (counting.load()) {
    thread_local const int self = threads.fetch_add(1);
    if (self < kMostThreads) {
      const long number = counts[self].fetch_add(1);
      if (self == failing.thread && number == failing.allocation) throw std::bad_alloc();
    }
  }
  void* const memory = std::malloc(bytes != 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

/// Makes and uses communicators. Returns whether all went well.
bool work() {
  bool good = true;
  const auto ok = [&](whorlResult_t result) {
    good = good && result == whorlSuccess;
    return result == whorlSuccess;
  };
  whorlUniqueId id;
  whorlComm_t alone = nullptr;
  if (ok(whorlGetUniqueId(&id)) && ok(whorlCommInitRank(&alone, 1, id, 0))) {
    ok(whorlBarrier(alone, nullptr));
  }
  whorlComm_t comms[2] = {};
  if (ok(whorlCommInitAll(comms, 2, nullptr))) {
    float in[2] = {1, 2}, out[2] = {};
    ok(whorlGroupStart());
    for (int rank = 0; rank < 2; ++rank) {
      ok(whorlAllReduce(&in[rank], &out[rank], 1, whorlFloat32, whorlSum, comms[rank], nullptr));
    }
    ok(whorlGroupEnd());
    if (good && (out[0] != 3 || out[1] != 3)) std::_Exit(3); // success with a wrong result
    ok(whorlGroupStart());
    whorlComm_t parts[2] = {};
    for (int rank = 0; rank < 2; ++rank)
      ok(whorlCommSplit(comms[rank], 0, rank, &parts[rank], nullptr));
    ok(whorlGroupEnd());
    for (whorlComm_t part : parts) {
      if (part != nullptr) whorlCommAbort(part);
    }
  }
  for (whorlComm_t comm : {comms[0], comms[1], alone}) {
    if (comm != nullptr) whorlCommAbort(comm);
  }
  return good;
}

} // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

/// Prints where the program is, since a test that only aborts says nothing.
[[noreturn]] void print_stack_and_abort() {
  std::array<void*, 64> frames{};
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  ::backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
  std::abort();
}

/// Runs work() in a process of its own, with one allocation failing, and counts allocations.
/// Returns the status of the process.
int status_with(Number number, const char* timeout_ms) {
  std::fflush(nullptr);
  for (int thread = 0; thread < kMostThreads; ++thread) counts[thread].store(0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    setenv("WHORL_TIMEOUT_MS", timeout_ms, 1);
    std::set_terminate(print_stack_and_abort);
    failing = number;
    counting.store(true);
    const bool good = work();
    counting.store(false);
    std::_Exit(good ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(OutOfMemory, AtAnyAllocationIsAnError) {
  setenv("WHORL_LOG", "off", 1);
  // Shared with the children: a process that has used the library is no parent of ranks.
  whorl::test::SharedArray<std::atomic<long>> shared(kMostThreads);
  counts = shared.data();
  ASSERT_EQ(status_with({}, "30000"), 0);
  std::vector<long> all(counts, counts + kMostThreads);
  ASSERT_GT(all[0], 100);
  int errors = 0;
  for (int thread = 0; thread < kMostThreads; ++thread) {
    const auto of_thread = all[static_cast<std::size_t>(thread)];
    for (long i = 0; i < of_thread; ++i) {
      const Number number{thread, i};
      const int status =
          status_with(number, "200"); // ms for ranks whose peer fails before they meet
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1)
          << "allocation " << number.allocation << " of " << of_thread << " in thread " << thread
          << ": status " << std::hex << status;
      errors += WIFEXITED(status) && WEXITSTATUS(status) == 1 ? 1 : 0;
    }
  }
  EXPECT_GT(errors, 0);
  std::printf("%d errors\n", errors);
}

} // namespace
