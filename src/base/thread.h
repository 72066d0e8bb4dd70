#pragma once

#include <cstddef>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"

namespace whorl {

/// Starts a thread that receives no signals. `name` has at most 15 characters. Fails where the
/// system has no thread left.
Result<std::thread> start_thread(const char* name, std::function<void()> body);
/// Starts such a thread, which nobody joins.
Status start_detached_thread(const char* name, std::function<void()> body);

/// Threads of one call, which waits for them in any case: also where one cannot be started, or an
/// allocation fails.
class Threads {
 public:
  explicit Threads(std::size_t most) { threads_.reserve(most); }
  ~Threads() { join(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  /// Starts one more thread, see start_thread(). Throws nothing.
  template <class Body>
  Status start(const char* name, Body&& body) {
    return without_exceptions([&]() -> Status {
      auto thread = start_thread(name, std::forward<Body>(body));
      if (!thread.ok()) return thread.status();
      threads_.push_back(*std::move(thread)); // has room
      return {};
    });
  }
  void join();

 private:
  std::vector<std::thread> threads_;
};

/// Returns whether start_thread() made the calling thread.
bool in_own_thread() noexcept;

} // namespace whorl
