#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/event.h"
#include "base/status.h"
#include "engine/request.h"
#include "engine/stream.h"

namespace whorl {

/// A batch of calls with streams on one communicator.
struct Task {
  std::vector<Request> batch;
  std::vector<std::shared_ptr<Ticket>> tickets;
  std::uint64_t timeout_ns = 0; ///< set by Communicator::submit()
};

/// Who carries out the tasks of a queue: its communicator.
class TaskRunner {
 public:
  /// Waits for the operations before `task` in its streams, then carries it out. Called by the
  /// thread that has begun the task, see TaskQueue.
  virtual Status run_task(const Task& task) = 0;

 protected:
  ~TaskRunner() = default;
};

/// The tasks of one communicator, carried out in order, one at a time: by its progress thread, or,
/// because a hand-over to that takes longer than a small operation, by a thread that waits for one
/// of them before it has been begun. Who has begun a task owns the engine until the task is
/// finished; while nothing is queued the caller does. Any thread. Shared with the streams of its
/// tasks, so it may outlive the communicator, but not with a task in it.
class TaskQueue final : public StreamHelper {
 public:
  explicit TaskQueue(TaskRunner& runner) noexcept : runner_(runner) {}

  void push(Task task);
  /// Whether nothing is queued or under way: then the engine is the caller's.
  bool idle() const noexcept {
    return pending_.load(std::memory_order_acquire) == 0; // pairs with release in carry_out()
  }
  /// Waits for the first task and carries it out, for the progress thread. False after stop().
  bool serve(const WaitPolicy& policy);
  void stop() noexcept;
  bool help(const Stream* stream) override;
  /// Waits until idle(), and helps.
  void drain();

 private:
  bool begin_first(Task& task);
  bool begin_first_for(const Stream* stream, Task& task);
  void carry_out(const Task& task);

  TaskRunner& runner_; ///< alive while there are tasks
  std::mutex mutex_;
  std::deque<Task> tasks_; ///< that have not been begun
  bool busy_ = false;      ///< a task has been begun and not been finished
  std::atomic<std::size_t> pending_{0};
  std::atomic<bool> stop_{false};
  Event event_; ///< notified when any of these changes
};

} // namespace whorl
