// Tests that any failed allocation, of whorl or of OpenSSL, gives an error, or none, but never ends
// the process.
#include <execinfo.h>
#include <gtest/gtest.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <span>
#include <vector>

#include "tests/support/shared_array.h"
#include "whorl/whorl.h"

namespace {

/// Caller of an allocation.
enum Caller { kWhorl, kOpenssl };

/// Allocation of a process: numbers from 0 of the thread, in the order of their first allocations,
/// and of the caller's allocation in this thread. So which one it is does not depend on what
/// threads do at the same time.
struct Number {
  Caller caller = kWhorl;
  int thread = -1;
  long allocation = 0;
};

constexpr int kMostThreads = 32;
using Counts = std::array<std::array<std::atomic<long>, kMostThreads>, 2>;

std::atomic<bool> counting{false};
Number failing;              ///< the allocation that fails, of no thread: none
std::atomic<int> threads{0}; ///< those that have allocated
Counts* counts = nullptr;    ///< of allocations, by caller and thread

/// Counts an allocation. Returns whether it is the one that fails.
bool fails(Caller caller) {
  if (!counting.load()) return false;
  thread_local const int self = threads.fetch_add(1);
  return self < kMostThreads &&
         (*counts)[caller][static_cast<std::size_t>(self)].fetch_add(1) == failing.allocation &&
         self == failing.thread && caller == failing.caller;
}

void* allocate(std::size_t bytes) {
  void* const memory = fails(kWhorl) ? nullptr : std::malloc(bytes != 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

/// Counts the allocations of OpenSSL, too, which must not have made any before. Those of its first
/// use are left out: without memory for its own tables OpenSSL 3.0 ends the process.
bool count_those_of_openssl() {
  const bool hooked =
      CRYPTO_set_mem_functions([](std::size_t bytes, const char*,
                                  int) { return fails(kOpenssl) ? nullptr : std::malloc(bytes); },
                               [](void* memory, std::size_t bytes, const char*, int) {
                                 return fails(kOpenssl) ? nullptr : std::realloc(memory, bytes);
                               },
                               [](void* memory, const char*, int) { std::free(memory); }) == 1;
  unsigned char digest[EVP_MAX_MD_SIZE];
  return hooked && EVP_Digest("", 0, digest, nullptr, EVP_sha256(), nullptr) == 1;
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

/// Starts a process that runs work() with one allocation failing, and counts allocations: with
/// encryption, also those of OpenSSL.
pid_t start_with(Number number, const char* timeout_ms, bool encrypts) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    setenv("WHORL_TIMEOUT_MS", timeout_ms, 1);
    if (encrypts) {
      setenv("WHORL_TRANSPORTS", "tcp", 1);
      setenv("WHORL_ENCRYPT", "1", 1);
      if (!count_those_of_openssl()) std::_Exit(4);
    }
    std::set_terminate(print_stack_and_abort);
    failing = number;
    static Counts own; // processes with failures run at once
    if (failing.thread >= 0) counts = &own;
    counting.store(true);
    const bool good = work();
    counting.store(false);
    std::_Exit(good ? 0 : 1);
  }
  return child;
}

int status_of(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

class OutOfMemory : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Encryption, OutOfMemory, ::testing::Bool());

TEST_P(OutOfMemory, AtAnyAllocationIsAnError) {
  setenv("WHORL_LOG", "off", 1);
  // Shared with the children: a process that has used the library is no parent of ranks.
  whorl::test::SharedArray<Counts> shared(1);
  counts = shared.data();
  ASSERT_EQ(status_of(start_with({}, "30000", GetParam())), 0);
  std::vector<Number> all;
  constexpr long kStepOfOpenssl = 11; // it makes thousands, most of them in the same few calls
  for (const Caller caller : {kWhorl, kOpenssl}) {
    const long step = caller == kWhorl ? 1 : kStepOfOpenssl;
    for (int thread = 0; thread < kMostThreads; ++thread) {
      const long number = (*counts)[caller][static_cast<std::size_t>(thread)];
      for (long i = 0; i < number; i += step) all.push_back({caller, thread, i});
    }
  }
  ASSERT_GT(all.size(), 100U);
  int errors = 0;
  constexpr std::size_t kAtOnce = 8; // most of them wait
  for (std::size_t begin = 0; begin < all.size(); begin += kAtOnce) {
    const auto batch = std::span(all).subspan(begin, std::min(kAtOnce, all.size() - begin));
    std::vector<pid_t> children;
    for (const Number& number : batch) { // 200 ms for ranks whose peer fails before they meet
      children.push_back(start_with(number, "200", GetParam()));
    }
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const int status = status_of(children[i]);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1)
          << "allocation " << batch[i].allocation << " of caller " << batch[i].caller
          << " in thread " << batch[i].thread << ": status " << std::hex << status;
      errors += WIFEXITED(status) && WEXITSTATUS(status) == 1 ? 1 : 0;
    }
  }
  EXPECT_GT(errors, 0);
  std::printf("%zu allocations, %d errors\n", all.size(), errors);
}

} // namespace
