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

#include "bindings/torch/src/roll_call.h"
#include "whorl/whorl.h"

namespace whorl_torch {

/// A whorl communicator that is created when it is first used, at a meeting point that the ranks of
/// the group know, or else through a c10d store. One thread at a time, except for interrupt(),
/// set_timeout(), state() and failure().
class Communicator {
 public:
  struct Place {
    c10::intrusive_ptr<c10d::Store> store;
    std::string prefix; ///< of the keys; distinct for each communicator
    int rank;
    int size;
    std::string
        name; ///< in messages, "process group 0", and at a meeting point; distinct in a group
    std::chrono::milliseconds timeout;
    std::shared_ptr<RollCall> roll; ///< of the ranks of the group
    std::vector<int> ranks;         ///< of the group, that the communicator has; empty: all
    int host = 0;                   ///< rank of the group at whose meeting point they meet
  };
  explicit Communicator(Place place);
  /// Takes over a communicator that exists, for instance from whorlCommSplit().
  Communicator(Place place, whorlComm_t comm);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// The handle, for an operation with this timeout (none: that of the group). Creates the
  /// communicator the first time, which waits for all its ranks and fails soon after one of them
  /// has ended. Throws.
  whorlComm_t get(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  /// Ends what is under way, on all ranks; from any thread. get() throws from now on.
  void interrupt();
  /// Frees the communicator; nothing is under way.
  void destroy();
  void set_timeout(std::chrono::milliseconds timeout);
  /// What has happened to the communicator: whorlSuccess while it is well or not created.
  whorlResult_t state();
  /// The error that ended it, also an interruption; null while it is well, or was destroyed well.
  std::exception_ptr failure();

 private:
  std::exception_ptr look_for_failure();
  void create(std::int64_t timeout_ms);
  whorlResult_t wait_for_creation(whorlComm_t comm, bool by_store);
  /// Of the group: one of the communicator's whose process has ended; none: -1.
  int rank_that_has_ended() const;
  /// Says what keeps the ranks from meeting; empty: nothing that is known.
  std::string obstacle(bool by_store) const;
  template <class Error>
  [[noreturn]] void give_up(whorlComm_t comm, const std::string& why);

  Place place_;
  std::mutex ending_; ///< who ends the communicator; taken before mutex_
  std::mutex mutex_;  ///< of comm_, interrupted_ and failure_; nobody waits with it
  whorlComm_t comm_ = nullptr;
  std::atomic<bool> interrupted_{false};
  std::exception_ptr failure_;
  std::atomic<std::int64_t> timeout_ms_;
  std::int64_t timeout_in_force_ms_ = 0;
  std::string creation_error_;
};

} // namespace whorl_torch
