#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bindings/torch/src/process_liveness.h"
#include "whorl/whorl.h"

namespace whorl_torch {

/// A whorl communicator that is created when it is first used, at a meeting point that the ranks of
/// the group know, or else through a c10d store. One thread at a time, except for interrupt(),
/// set_timeout(), state() and failure().
class Communicator {
 public:
  struct Place {
    c10::intrusive_ptr<c10d::Store> store;
    std::string prefix; ///< prefix of the keys; distinct for each communicator
    int rank;
    int size;
    /// Name in messages, "process group 0", and at a meeting point; distinct in a group.
    std::string name;
    std::chrono::milliseconds timeout;
    std::shared_ptr<ProcessLiveness> processes; ///< processes of the group
    std::vector<int> ranks; ///< ranks of the group that the communicator has; empty: all
    int host = 0;           ///< rank of the group at whose meeting point they meet
  };
  explicit Communicator(Place place);
  /// Takes over a communicator that exists, for instance from whorlCommSplit().
  Communicator(Place place, whorlComm_t comm);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Returns the handle, for an operation with this timeout (none: that of the group). Creates the
  /// communicator the first time, which waits for all its ranks and fails soon after one of them
  /// has ended. Throws.
  whorlComm_t get(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  /// Ends what is under way, on all ranks; from any thread. get() throws from now on.
  void interrupt();
  /// Ends what is under way, on all ranks, and keeps the communicator for whorlCommShrink(); from
  /// any thread.
  void revoke();
  /// Frees the communicator, on which nothing may be under way.
  void destroy();
  void set_timeout(std::chrono::milliseconds timeout);
  /// Returns the asynchronous error of the communicator; whorlSuccess if there is none, or no
  /// communicator yet.
  whorlResult_t state();
  /// Returns the error that ended the communicator, also an interruption; null if there is none.
  std::exception_ptr failure();

 private:
  std::exception_ptr query_failure();
  void create(std::int64_t timeout_ms);
  /// Waits until the creation has ended. `end` becomes why the ranks cannot meet any more, if that
  /// was seen meanwhile.
  whorlResult_t wait_for_creation(whorlComm_t comm, bool by_store, std::string& end);
  /// Returns a rank of the communicator whose process has ended, by its number in the group; -1 if
  /// there is none.
  int rank_that_has_ended() const;
  /// Says why the ranks cannot meet any more; empty if no reason is known.
  std::string meeting_failure(bool by_store) const;
  template <class Error>
  [[noreturn]] void abandon(whorlComm_t comm, const std::string& why);

  Place place_;
  std::mutex ending_; ///< held by the thread that ends the communicator; taken before mutex_
  std::mutex mutex_;  ///< guards comm_, interrupted_ and failure_; not held during waits
  whorlComm_t comm_ = nullptr;
  std::atomic<bool> interrupted_{false};
  std::exception_ptr failure_;
  std::atomic<std::int64_t> timeout_ms_;
  std::int64_t timeout_in_force_ms_ = 0;
  std::string creation_error_;
};

} // namespace whorl_torch
