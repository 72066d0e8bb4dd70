#include "bindings/torch/src/callback_order.h"

// Why operations that callbacks issue meet those of the other ranks that belong to them:
//
//     depth 0     A1   A2   A3          issued by the program, in its order
//                  │    │    │
//     depth 1     P1   Q1   P2 Q2  P3   issued by the callbacks of A1, A2, A3
//
// Whether A2 or P1 is issued first depends on timing, so the two have a communicator and a queue
// each, by depth. Within depth 1 the order is that in which the callbacks run, and these run one
// after the other in the order of depth 0, whichever thread runs them: one that completes an
// operation, or the one that attaches a callback to a future that is complete already.
namespace whorl_torch {
namespace {

thread_local CallbackScope* current_callback = nullptr;
thread_local CompletionScope* current_completion = nullptr;

} // namespace

std::uint64_t CallbackOrder::issue() {
  const std::lock_guard lock(mutex_);
  return ++issued_;
}

void CallbackOrder::complete(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  completed_ahead_.insert(number);
  while (!completed_ahead_.empty() && *completed_ahead_.begin() == completed_ + 1) {
    completed_ahead_.erase(completed_ahead_.begin());
    ++completed_;
  }
  changed_.notify_all();
}

void CallbackOrder::wait_for(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return completed_ >= number || ended_; });
}

void CallbackOrder::wait_for_all(Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return completed_ == issued_ || ended_; });
}

void CallbackOrder::release() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

CallbackScope::CallbackScope(const Origin& origin) : origin_(origin), outer_(current_callback) {
  // The operation is complete, so either this thread completes it, or its other callbacks have run
  // or run on another thread. A thread that is busy with an operation of the queue cannot wait for
  // its own end.
  if (origin_.order != nullptr && !within(*origin_.order)) {
    bool wait = true;
    std::uint64_t until = origin_.number;
    for (auto* scope = current_completion; scope != nullptr; scope = scope->outer_) {
      if (scope->origin_.order != origin_.order) continue;
      wait = scope->origin_.number == origin_.number;
      until = origin_.number - 1;
      break;
    }
    if (wait) origin_.order->wait_for(until);
  }
  current_callback = this;
}

CallbackScope::~CallbackScope() { current_callback = outer_; }

int CallbackScope::depth() {
  return current_callback == nullptr ? 0 : current_callback->origin_.depth + 1;
}

bool CallbackScope::within(const CallbackOrder& order) {
  for (const auto* scope = current_callback; scope != nullptr; scope = scope->outer_) {
    if (scope->origin_.order.get() == &order) return true;
  }
  return false;
}

CompletionScope::CompletionScope(const Origin& origin)
    : origin_(origin), outer_(current_completion) {
  current_completion = this;
}

CompletionScope::~CompletionScope() {
  current_completion = outer_;
  if (origin_.order != nullptr) origin_.order->complete(origin_.number);
}

} // namespace whorl_torch
