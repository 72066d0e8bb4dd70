#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tests/support/thread_world.h"
#include "whorl/whorl.h"

/// Calls on host streams by the C API, for tests; those that return a string return the words of
/// their error, or nothing.
namespace whorl::test {

/// Body of a callback.
using Body = std::function<void(whorlResult_t)>;
/// Calls the body at `data`, and frees it.
inline void run_body(void* data, whorlResult_t status) {
  const std::unique_ptr<Body> body(static_cast<Body*>(data));
  (*body)(status);
}
/// Queues a callback.
inline std::string add(whorlStream_t stream, Body body) {
  auto* const data = new Body(std::move(body));
  const whorlResult_t result = whorlStreamAddCallback(stream, run_body, data);
  if (result != whorlSuccess) delete data;
  return failure(result);
}

/// Queues the sum of one number in place.
inline std::string all_reduce(int& value, whorlComm_t comm, whorlStream_t stream) {
  return failure(whorlAllReduce(&value, &value, 1, whorlInt32, whorlSum, comm, stream), comm);
}

} // namespace whorl::test
