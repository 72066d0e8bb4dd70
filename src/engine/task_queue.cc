#include "engine/task_queue.h"

#include <algorithm>
#include <utility>

namespace whorl {

void TaskQueue::push(Task task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    pending_.fetch_add(1, std::memory_order_relaxed);
  }
  event_.notify();
}

void TaskQueue::stop() noexcept {
  stop_.store(true, std::memory_order_release); // pairs with acquire in serve()
  event_.notify();
}

/// Takes the first task, and the engine with it, unless a task is under way. With the mutex held.
bool TaskQueue::begin_first(Task& task) {
  if (begun_ || tasks_.empty()) return false;
  task = std::move(tasks_.front());
  tasks_.pop_front();
  begun_ = true;
  return true;
}

bool TaskQueue::begin_first_for(const Stream* stream, std::uint64_t number, Task& task) {
  const std::lock_guard lock(mutex_);
  const auto is_before = [=](const auto& ticket) {
    return &ticket->stream() == stream && ticket->number() <= number;
  };
  const auto of_stream = [&](const Task& any) {
    return stream == nullptr || std::any_of(any.tickets.begin(), any.tickets.end(), is_before);
  };
  const auto may_start = [](const auto& ticket) { return ticket->may_start(); };
  if (std::none_of(tasks_.begin(), tasks_.end(), of_stream)) return false;
  const auto& tickets = tasks_.front().tickets;
  return std::all_of(tickets.begin(), tickets.end(), may_start) && begin_first(task);
}

void TaskQueue::carry_out(const Task& task) {
  const Status status = runner_.run_task(task);
  {
    const std::lock_guard lock(mutex_);
    begun_ = false;
    // Pairs with acquire in idle(). From here on the communicator may be destroyed.
    pending_.fetch_sub(1, std::memory_order_release);
  }
  for (const auto& ticket : task.tickets) ticket->complete_part(status);
  event_.notify();
}

bool TaskQueue::serve(const WaitPolicy& policy) {
  CommError never_set;
  Event::Waiter waiter(event_);
  Task task;
  bool begun = false;
  static_cast<void>(wait_until(
      [&] {
        const std::lock_guard lock(mutex_);
        begun = begin_first(task);
        return begun || stop_.load(std::memory_order_acquire) ? Progress::kDone : Progress::kIdle;
      },
      policy, never_set, waiter));
  if (begun) carry_out(task);
  return begun;
}

bool TaskQueue::help(const Stream* stream, std::uint64_t number) {
  Task task;
  if (!begin_first_for(stream, number, task)) return false;
  carry_out(task);
  return true;
}

void TaskQueue::drain() {
  Event::Waiter waiter(event_);
  CommError never_set; // tasks end after the communicator's error, too, each with that error
  const WaitPolicy policy{
      .timeout_ns = UINT64_MAX, .spins = 20, .yield_ns = 50'000, .block_ns = 1'000'000'000};
  static_cast<void>(wait_until(
      [this] {
        if (idle()) return Progress::kDone;
        return help(nullptr) ? Progress::kAdvanced : Progress::kIdle;
      },
      policy, never_set, waiter));
}

} // namespace whorl
