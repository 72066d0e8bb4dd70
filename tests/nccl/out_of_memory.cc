// Tests of refused calls without memory for a sentence: the result is the same, and no exception
// leaves the library.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "bindings/nccl/abi.h"

namespace {

thread_local bool exhausted = false;

int failures = 0;

void expect(const char* call, ncclResult_t result, ncclResult_t expected) {
  const char* const sentence = ncclGetLastError(nullptr);
  exhausted = false;
  if (result != expected || std::strcmp(sentence, "out of memory") != 0) {
    std::fprintf(stderr, "%s: %s (\"%s\"), not %s (\"out of memory\")\n", call,
                 ncclGetErrorString(result), sentence, ncclGetErrorString(expected));
    ++failures;
  }
}

} // namespace

void* operator new(std::size_t bytes) {
  void* const memory = exhausted ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return exhausted ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

/// Makes the call without memory, and checks its result.
#define EXPECT_REFUSED(expected, call)   \
  do {                                   \
    exhausted = true;                    \
    const ncclResult_t result_ = (call); \
    expect(#call, result_, expected);    \
  } while (0)

int main() {
  constexpr auto kNoType = static_cast<ncclDataType_t>(15);
  constexpr auto kNoOperator = static_cast<ncclRedOp_t>(ncclNumOps);
  int data = 0;
  ncclComm_t comm = nullptr;
  ncclConfig_t unset{}, wrong = NCCL_CONFIG_INITIALIZER, crossed = NCCL_CONFIG_INITIALIZER;
  wrong.blocking = 7;
  crossed.minCTAs = 3;
  crossed.maxCTAs = 2;
  const ncclUniqueId id{};
  const auto window = reinterpret_cast<ncclWindow_t>(&data);
  const auto all_reduce = [&](ncclDataType_t type, ncclRedOp_t op) {
    return ncclAllReduce(&data, &data, 1, type, op, comm, nullptr);
  };

  EXPECT_REFUSED(ncclInvalidArgument, all_reduce(kNoType, ncclSum));
  EXPECT_REFUSED(ncclInvalidArgument, all_reduce(ncclInt, kNoOperator));
  EXPECT_REFUSED(ncclInvalidArgument, ncclRedOpDestroy(kNoOperator, comm));
  EXPECT_REFUSED(ncclSystemError, ncclCommInitRankConfig(&comm, 1, id, 0, &unset));
  EXPECT_REFUSED(ncclSystemError, ncclCommInitRankConfig(&comm, 1, id, 0, &wrong));
  EXPECT_REFUSED(ncclSystemError, ncclCommInitRankConfig(&comm, 1, id, 0, &crossed));
  EXPECT_REFUSED(ncclInvalidArgument, ncclCommShrink(comm, nullptr, 0, &comm, nullptr, 0));
  EXPECT_REFUSED(ncclSystemError, ncclCommGrow(comm, 2, nullptr, 0, &comm, nullptr));
  EXPECT_REFUSED(ncclSystemError, ncclCommWindowDeregister(comm, window));
  EXPECT_REFUSED(ncclInvalidUsage, ncclSignal(0, 0, 0, 0, comm, nullptr));

  // A group reports the first error when it ends.
  if (ncclGroupStart() != ncclSuccess) return 1;
  EXPECT_REFUSED(ncclInvalidArgument, all_reduce(kNoType, ncclSum));
  EXPECT_REFUSED(ncclInvalidArgument, all_reduce(ncclInt, kNoOperator));
  EXPECT_REFUSED(ncclInvalidArgument, ncclGroupEnd());

  // A valid call that fails for lack of memory: the group issues nothing.
  ncclComm_t alone = nullptr;
  if (ncclCommInitAll(&alone, 1, nullptr) != ncclSuccess) return 1;
  data = 5;
  int result = 0;
  if (ncclGroupStart() != ncclSuccess) return 1;
  EXPECT_REFUSED(ncclSystemError,
                 ncclAllReduce(&data, &result, 1, ncclInt, ncclSum, alone, nullptr));
  if (ncclGroupEnd() != ncclSystemError || result != 0) {
    std::fprintf(stderr, "the group ended well\n");
    ++failures;
  }
  if (ncclAllReduce(&data, &result, 1, ncclInt, ncclSum, alone, nullptr) != ncclSuccess ||
      result != 5 || ncclCommDestroy(alone) != ncclSuccess) {
    std::fprintf(stderr, "the call after that: %s\n", ncclGetLastError(alone));
    ++failures;
  }
  return failures == 0 ? 0 : 1;
}
