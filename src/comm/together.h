#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/wait.h"
#include "comm/batch.h"

namespace whorl {

/// Leaves an error in its batch, and in `first` if that has none yet.
inline void record_error(Batch& batch, const Status& status, Status& first) {
  if (status.ok()) return;
  batch.error = status;
  if (first.ok()) first = status;
}

/// The wait of one thread for several communicators at the same time.
class Together final : public Waiter {
 public:
  /// Threads that drive the engines of the communicators during the wait.
  enum class Engines { kThisThread, kOtherThreads };
  /// Prepares a wait for `batches`, which are not empty and outlive this object.
  Together(std::span<Batch* const> batches, Engines engines)
      : batches_(batches.begin(), batches.end()),
        engines_(engines),
        policy_(batches.front()->communicator->policy()) {
    for (const Batch* const batch : batches) { // the longest timeout is the timeout of all
      policy_.timeout_ns = std::max(policy_.timeout_ns, batch->communicator->policy().timeout_ns);
    }
  }

  /// Calls `step` for every batch, again and again, until it has returned kDone for each. Returns
  /// the batches for which it has not, if the timeout has passed without progress.
  template <class Step>
  std::vector<Batch*> drive(Step&& step) {
    std::vector<Batch*> active = batches_;
    const auto attempt = [&] {
      bool moved = false;
      std::erase_if(active, [&](Batch* batch) {
        const Progress progress = step(*batch);
        moved |= progress != Progress::kIdle;
        return progress == Progress::kDone;
      });
      if (active.empty()) return Progress::kDone;
      return moved ? Progress::kAdvanced : Progress::kIdle;
    };
    const CommError never_set; // the error of one communicator does not end the wait for the others
    static_cast<void>(wait_until(attempt, policy_, never_set, *this));
    return active;
  }

  void block(std::uint64_t max_ns) noexcept override { clock_.block(max_ns); }
  void poll_failures(std::uint64_t waited_ns) noexcept override {
    for (Batch* const batch : batches_) {
      if (engines_ == Engines::kThisThread) {
        // This also logs what the engine waits for.
        batch->communicator->waiter().poll_failures(waited_ns);
      } else {
        static_cast<void>(batch->communicator->state());
      }
    }
  }

 private:
  std::vector<Batch*> batches_;
  Engines engines_;
  WaitPolicy policy_;
  ClockWaiter clock_;
};

} // namespace whorl
