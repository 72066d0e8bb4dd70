#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/event.h"
#include "base/status.h"
#include "engine/request.h"
#include "engine/stream.h"

namespace whorl {

/// Step of streams: a batch of calls on one communicator, or a callback in a stream.
struct Task {
  std::vector<Request> batch;
  /// Callback, which takes the first error of what was queued before it; empty: there is a batch.
  std::function<Status(const Status&)> callback = {};
  std::vector<std::shared_ptr<Ticket>> tickets;
  std::uint64_t timeout_ns = 0; ///< set by Communicator::enqueue()
  std::uint64_t pushed_ns = 0;  ///< set by TaskQueue::push(), if the queue is patient
};

/// Executor of the tasks of a queue: its communicator, or the stream of callbacks.
class TaskRunner {
 public:
  /// Waits for the operations before `task` in its streams, then carries out `task`. Called by the
  /// thread that has begun the task, see TaskQueue. An exception counts as an error.
  virtual Status run_task(const Task& task) = 0;

 protected:
  ~TaskRunner() = default;
};

/// Tasks of one communicator, or the callbacks of one stream, carried out in order, one at a time:
/// by the thread of the communicator or stream, or by a thread that waits for one of them before it
/// has been begun, because a hand-over between threads takes longer than a small operation. The
/// thread that has begun a task owns the engine until the task is finished; while the queue is
/// empty the caller does. Any thread. Shared with the streams of its tasks, so it may outlive the
/// communicator, but not with a task in it.
class TaskQueue final : public StreamHelper {
 public:
  /// Makes a queue whose own thread leaves each task in streams of the host, for `patience_ns`, to
  /// the threads that may wait for it, unless somebody is in a hurry.
  explicit TaskQueue(TaskRunner& runner, std::uint64_t patience_ns = 0)
      : runner_(runner), patience_ns_(patience_ns) {}

  void push(Task task);
  /// Returns whether nothing is queued or under way: then the caller owns the engine.
  bool idle() const noexcept {
    return pending_.load(std::memory_order_acquire) == 0; // pairs with release in carry_out()
  }
  /// Waits for the first task and carries it out, for the progress thread. Returns false after
  /// stop(), once no task is left to begin.
  bool serve(const WaitPolicy& policy);
  void stop() noexcept;
  bool help(const Stream* stream, std::uint64_t number = UINT64_MAX) override;
  void hurry() noexcept override;
  bool patient() const noexcept override { return patience_ns_ > 0; }
  /// Returns the number of operations in tasks that have not been begun.
  std::size_t queued_operations();
  /// Waits until idle(), and carries out tasks meanwhile. While another thread carries out a task,
  /// calls `look` from time to time, which may make the task fail.
  void drain(const std::function<void()>& look = {});

 private:
  class PatientWaiter;
  class LookingWaiter;

  bool begin_first(Task& task);
  bool first_is_overdue() const noexcept;
  bool begin_first_for(const Stream* stream, std::uint64_t number, Task& task);
  enum class By : std::uint8_t { kOwnThread, kWaitingThread };
  void carry_out(const Task& task, By by);
  void hurry_first();

  TaskRunner& runner_; ///< executor; alive while there are tasks
  const std::uint64_t patience_ns_;
  std::mutex mutex_;
  std::deque<Task> tasks_;      ///< tasks that have not been begun
  bool begun_ = false;          ///< whether a task has been begun and not been finished
  bool hurried_ = false;        ///< whether the thread is to begin at once what is queued
  std::uint64_t helped_ns_ = 0; ///< time at which help() last carried out a task, if patient
  std::atomic<std::size_t> pending_{0};
  std::atomic<std::uint64_t> pushed_{0}; ///< number of tasks so far
  std::atomic<bool> stop_{false};
  Event event_; ///< notified when any of these members changes, but for `hurried_`
  Event hurry_; ///< notified when `hurried_` becomes true, and when `stop_` does
};

} // namespace whorl
