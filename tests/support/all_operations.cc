#include "tests/support/all_operations.h"

#include <cstdint>
#include <vector>

#include "tests/support/operations.h"
#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

/// Makes one call and compares its result. Returns the error, or "".
std::string call_and_compare(const Operation& operation, const Arguments& arguments,
                             Caller caller) {
  const std::size_t size = buffer_bytes(arguments, caller.nranks) / sizeof(std::int32_t);
  std::vector<std::int32_t> send, recv(size, -1);
  for (std::size_t i = 0; i < size; ++i) send.push_back(element(caller.rank, i));
  caller.send = reinterpret_cast<std::byte*>(send.data());
  caller.recv = reinterpret_cast<std::byte*>(recv.data());
  const std::string name(operation.name);
  if (auto failed = failure(operation.call(arguments, caller), caller.comm); !failed.empty()) {
    return name + ": " + failed;
  }
  if (operation.result == nullptr) return {};
  std::vector<std::int32_t> want =
      operation.result(blocks_of(operation, arguments, caller.nranks), arguments, caller);
  want.resize(size, -1); // nothing is written beyond the result
  return recv == want ? "" : name + ": wrong elements";
}

} // namespace

std::string all_operations(int rank, int nranks, whorlComm_t comm) {
  for (const Operation& operation : operations()) {
    // Of blocks that differ in size some are empty.
    Arguments arguments{
        .count = operation.uneven ? 0U : 3U, .type = whorlInt32, .root = nranks - 1, .cycle = 3};
    for (const int distance : {1, nranks / 2, nranks - 1}) {
      arguments.distance = distance;
      auto wrong =
          call_and_compare(operation, arguments, {.rank = rank, .nranks = nranks, .comm = comm});
      if (!wrong.empty()) return wrong;
      if (operation.name != "sendrecv") break;
    }
  }
  return {};
}

} // namespace whorl::test
