#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/scoped_env.h"
#include "whorl/whorl.h"

namespace whorl::test {

/// Communicators of n ranks in this process. The constructor throws if the communicators cannot be
/// made, which fails the test.
class ThreadWorld {
 public:
  explicit ThreadWorld(int nranks) : comms_(static_cast<std::size_t>(nranks)) {
    const whorlResult_t result = whorlCommInitAll(comms_.data(), nranks, nullptr);
    if (result != whorlSuccess) throw std::runtime_error(whorlGetLastError(nullptr));
  }
  ~ThreadWorld() {
    for (whorlComm_t comm : comms_) EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  }
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;

  int size() const { return static_cast<int>(comms_.size()); }
  whorlComm_t comm(int rank) const { return comms_[static_cast<std::size_t>(rank)]; }

  /// Runs `body(rank, comm)` on a thread for each rank. A text that `body` returns, if not empty,
  /// is a failure.
  void each(const std::function<std::string(int, whorlComm_t)>& body) {
    std::vector<std::string> failures(comms_.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < comms_.size(); ++rank) {
      threads.emplace_back(
          [&, rank] { failures[rank] = body(static_cast<int>(rank), comms_[rank]); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  }

 private:
  std::vector<whorlComm_t> comms_;
};

/// Returns the error of the creation of n ranks; "": they can be made.
inline std::string creation_error(int nranks) {
  try {
    const ThreadWorld world(nranks);
    return {};
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

/// Returns "" for success, else code and sentence.
inline std::string failure(whorlResult_t result, whorlComm_t comm = nullptr) {
  if (result == whorlSuccess) return {};
  return std::string(whorlGetErrorString(result)) + ": " + whorlGetLastError(comm);
}

} // namespace whorl::test
