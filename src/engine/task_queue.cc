#include "engine/task_queue.h"

#include <algorithm>
#include <utility>

namespace whorl {

/// Waiter of a patient queue's thread. While tasks come the thread looks at them from time to time,
/// so that no push() has to wake it; after some looks without a new task it sleeps until it is
/// woken.
class TaskQueue::PatientWaiter final : public Waiter {
 public:
  explicit PatientWaiter(TaskQueue& queue) noexcept
      : queue_(queue), any_change_(queue.event_), hurry_(queue.hurry_) {}
  void block(std::uint64_t max_ns) noexcept override {
    const std::uint64_t pushed = queue_.pushed_.load(std::memory_order_relaxed);
    if (std::exchange(seen_, pushed) != pushed) vain_looks_ = 0;
    if (vain_looks_ == kVainLooks) return any_change_.block(max_ns);
    ++vain_looks_;
    hurry_.block(std::min(max_ns, queue_.patience_ns_));
  }

 private:
  static constexpr int kVainLooks = 10;

  TaskQueue& queue_;
  Event::Waiter any_change_, hurry_;
  std::uint64_t seen_ = 0; ///< number of tasks at the last look
  int vain_looks_ = 0;     ///< looks since the last push()
};

void TaskQueue::push(Task task) {
  // Threads that wait for a stream of a device carry out nothing here.
  const auto of_device = [](const auto& ticket) { return ticket->stream().device().has_value(); };
  const bool hurried = std::any_of(task.tickets.begin(), task.tickets.end(), of_device);
  {
    const std::lock_guard lock(mutex_);
    if (patience_ns_ > 0) task.pushed_ns = sys().now_ns();
    tasks_.push_back(std::move(task));
    pending_.fetch_add(1, std::memory_order_relaxed);
    pushed_.fetch_add(1, std::memory_order_relaxed); // only compared
  }
  event_.notify();
  if (hurried) hurry();
}

void TaskQueue::hurry() noexcept {
  if (patience_ns_ == 0) return;
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.empty() || hurried_) return;
    hurried_ = true;
  }
  hurry_.notify();
}

void TaskQueue::stop() noexcept {
  stop_.store(true, std::memory_order_release); // pairs with acquire in serve()
  event_.notify();
  hurry_.notify();
}

/// Takes the first task, and the engine with it, unless a task is under way. With the mutex held.
bool TaskQueue::begin_first(Task& task) {
  if (begun_ || tasks_.empty()) return false;
  task = std::move(tasks_.front());
  tasks_.pop_front();
  begun_ = true;
  if (tasks_.empty()) hurried_ = false;
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

void TaskQueue::carry_out(const Task& task, By by) {
  const Status status = without_exceptions([&] { return runner_.run_task(task); });
  {
    const std::lock_guard lock(mutex_);
    begun_ = false;
    if (by == By::kWaitingThread && patience_ns_ > 0) helped_ns_ = sys().now_ns();
    // Pairs with acquire in idle(). From here on the communicator may be destroyed.
    pending_.fetch_sub(1, std::memory_order_release);
  }
  for (const auto& ticket : task.tickets) ticket->complete_part(status);
  event_.notify();
}

/// Returns whether the first task was left long enough to the threads that may wait for it: since
/// it was pushed, and since one of them has carried out another one, but no longer than
/// kMostPatience times. With the mutex held.
bool TaskQueue::first_is_overdue() const noexcept {
  constexpr std::uint64_t kMostPatience = 4;
  if (patience_ns_ == 0 || tasks_.empty() || hurried_) return true;
  const std::uint64_t now = sys().now_ns(), pushed = tasks_.front().pushed_ns;
  return now >= std::max(pushed, helped_ns_) + patience_ns_ ||
         now >= pushed + kMostPatience * patience_ns_;
}

bool TaskQueue::serve(const WaitPolicy& policy) {
  CommError never_set;
  Event::Waiter eager(event_);
  PatientWaiter patient(*this);
  const bool is_patient = patience_ns_ > 0;
  WaitPolicy of_this = policy;
  if (is_patient) {
    of_this.spins = 0;
    of_this.yield_ns = 0;
    of_this.first_block_ns = patience_ns_;
  }
  Task task;
  bool begun = false;
  static_cast<void>(wait_until(
      [&] {
        const std::lock_guard lock(mutex_);
        const bool stopped = stop_.load(std::memory_order_acquire);
        begun = (stopped || first_is_overdue()) && begin_first(task);
        const bool over = stopped && tasks_.empty(); // else another thread is in an earlier task
        return begun || over ? Progress::kDone : Progress::kIdle;
      },
      of_this, never_set, is_patient ? static_cast<Waiter&>(patient) : eager));
  if (begun) carry_out(task, By::kOwnThread);
  return begun;
}

bool TaskQueue::help(const Stream* stream, std::uint64_t number) {
  Task task;
  if (!begin_first_for(stream, number, task)) return false;
  carry_out(task, By::kWaitingThread);
  return true;
}

/// Hurries the streams that the first task waits for.
void TaskQueue::hurry_first() {
  std::vector<std::shared_ptr<Ticket>> tickets;
  {
    const std::lock_guard lock(mutex_);
    if (!tasks_.empty()) tickets = tasks_.front().tickets;
  }
  for (const auto& ticket : tickets) {
    if (!ticket->may_start()) ticket->stream().hurry();
  }
}

std::size_t TaskQueue::queued_operations() {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const Task& task : tasks_) count += task.batch.size();
  return count;
}

/// Waiter for the end of tasks.
class TaskQueue::LookingWaiter final : public Waiter {
 public:
  LookingWaiter(Event& event, const std::function<void()>& look) : waiter_(event), look_(look) {}
  void block(std::uint64_t max_ns) noexcept override {
    constexpr std::uint64_t kBetweenLooksNs = 20'000'000;
    waiter_.block(look_ ? std::min(max_ns, kBetweenLooksNs) : max_ns);
  }
  void poll_failures(std::uint64_t) noexcept override {
    if (look_) look_();
  }

 private:
  Event::Waiter waiter_;
  const std::function<void()>& look_;
};

void TaskQueue::drain(const std::function<void()>& look) {
  LookingWaiter waiter(event_, look);
  bool hurried = false;
  CommError never_set; // tasks end after the communicator's error, too, each with that error
  const WaitPolicy policy{
      .timeout_ns = UINT64_MAX, .spins = 20, .yield_ns = 50'000, .block_ns = 1'000'000'000};
  static_cast<void>(wait_until(
      [&] {
        if (idle()) return Progress::kDone;
        if (help(nullptr)) return Progress::kAdvanced;
        if (patience_ns_ > 0 && !std::exchange(hurried, true)) hurry_first();
        return Progress::kIdle;
      },
      policy, never_set, waiter));
}

} // namespace whorl
