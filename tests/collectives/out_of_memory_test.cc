// Tests that any failed allocation gives an error, or none, but never ends the process.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "whorl/whorl.h"

namespace {

std::atomic<long> allocations{0};
std::atomic<long> failing{0}; ///< number of the allocation that fails, from 1; 0: none

void* allocate(std::size_t bytes) {
  if (const long number = allocations.fetch_add(1) + 1; number == failing.load()) {
    throw std::bad_alloc();
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

/// Runs work() in a process of its own, with allocation `number` failing, and writes the number of
/// allocations to `*counted`. Returns the status of the process.
int status_with(long number, std::atomic<long>* counted) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    allocations.store(0);
    failing.store(number);
    const bool good = work();
    failing.store(0);
    counted->store(allocations.load());
    std::_Exit(good ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(OutOfMemory, AtAnyAllocationIsAnError) {
  setenv("WHORL_TIMEOUT_MS", "200", 1); // of ranks whose peer has failed before they met
  setenv("WHORL_LOG", "off", 1);
  // Shared with the children: a process that has used the library is no parent of ranks.
  auto* const counted = static_cast<std::atomic<long>*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(status_with(0, counted), 0);
  const long all = counted->load();
  ASSERT_GT(all, 100);
  constexpr long kTries = 100;
  int errors = 0;
  for (long i = 0; i < kTries; ++i) {
    const long number = 1 + i * all / kTries;
    const int status = status_with(number, counted);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1)
        << "allocation " << number << " of " << all << ": status " << std::hex << status;
    errors += WEXITSTATUS(status);
  }
  EXPECT_GT(errors, 0);
  std::printf("%d errors for %ld failed allocations of %ld\n", errors, kTries, all);
}

} // namespace
