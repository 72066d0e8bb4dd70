#pragma once

#include <atomic>
#include <cstdint>

#include "base/wait.h"

namespace whorl {

/// Event on which threads of this process sleep until a condition changes. No wake-up is lost: a
/// Waiter made before its thread looks at the condition sees every notify() after that.
class Event {
 public:
  /// Wakes the waiting threads; called after the condition has been changed. Any thread; a system
  /// call only if a thread sleeps.
  void notify() noexcept {
    count_.fetch_add(1, std::memory_order_seq_cst); // pairs with the loads of Waiter::block()
    if (sleepers_.load(std::memory_order_seq_cst) != 0) sys().futex_wake(&count_);
  }

  /// Waiter for one wait_until() on the condition.
  class Waiter final : public whorl::Waiter {
   public:
    explicit Waiter(Event& event) noexcept
        : event_(event), seen_(event.count_.load(std::memory_order_seq_cst)) {}
    void block(std::uint64_t max_ns) noexcept override {
      event_.sleepers_.fetch_add(1, std::memory_order_seq_cst);
      // The kernel compares the count again, so a notify() in between is not slept through.
      if (event_.count_.load(std::memory_order_seq_cst) == seen_) {
        sys().futex_wait(&event_.count_, seen_, max_ns);
      }
      event_.sleepers_.fetch_sub(1, std::memory_order_relaxed);
      seen_ = event_.count_.load(std::memory_order_seq_cst);
    }

   private:
    Event& event_;
    std::uint32_t seen_;
  };

 private:
  std::atomic<std::uint32_t> count_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

} // namespace whorl
