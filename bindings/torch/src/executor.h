#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "bindings/torch/src/turns.h"
#include "bindings/torch/src/work.h"

namespace whorl_torch {

/// Carries out steps one at a time, each by whichever thread comes first: one of its own, which
/// exist once something asynchronous was issued, or a thread that waits for one of the operations.
/// So an operation that is waited for at once costs no hand-over.
///
/// Completing an operation runs callbacks, and a callback may wait for a later operation of the
/// same executor. Therefore completion is no part of a step, and a thread that is about to complete
/// something is replaced if there is more to do.
class Executor : public std::enable_shared_from_this<Executor> {
 public:
  virtual ~Executor() = default;

  using Deadline = std::chrono::steady_clock::time_point;
  /// Carries out steps, or waits while another thread does, until `work` is executed. False if
  /// another thread's step has not done so by the deadline; one of its own it cannot leave. Throws
  /// what the handler of a signal raises meanwhile: a step of its own has then failed, with its
  /// communicator, and one of another thread goes on.
  bool help_until(const WhorlWork& work, std::optional<Deadline> deadline = std::nullopt);
  /// Whether the calling thread is in a step of any executor: so is the handler of a signal that
  /// runs meanwhile.
  static bool in_step() noexcept;
  /// drain() and join().
  void close(std::chrono::milliseconds patience);
  /// Ends it: waits up to `patience` for what is outstanding, then interrupts it, and for
  /// callbacks. Later operations fail.
  void drain(std::chrono::milliseconds patience);
  /// After drain(): its threads are gone when it returns, but for the calling one.
  void join();
  /// Ends it at once: what is outstanding fails with `reason`.
  void interrupt(std::exception_ptr reason);

 protected:
  struct Finished {
    WorkPtr work;
    std::exception_ptr error;
  };
  using Lock = std::unique_lock<std::mutex>;

  /// Under the lock: whether there is something to do.
  virtual bool ready() const = 0;
  /// Under the lock: whether any operation has been accepted that is not executed.
  virtual bool outstanding() const = 0;
  /// Does one step if ready; releases the lock meanwhile. What it has finished is marked executed.
  virtual std::vector<Finished> step(Lock& lock) = 0;
  /// Under the lock: takes all outstanding operations away.
  virtual std::vector<Finished> take_all(const std::exception_ptr& reason) = 0;
  /// Without the lock: makes a step that is under way return soon.
  virtual void cut_short() = 0;
  /// Without the lock: waits until the callbacks of what is executed are over, unless the calling
  /// thread runs a callback itself.
  virtual void wait_for_callbacks(Deadline) {}
  /// Without the lock: from now on callbacks do not wait for one another.
  virtual void release_callbacks() {}
  /// Whether the calling thread runs a callback of one of its operations. Such a thread carries no
  /// other out: it would run that one's callbacks before its own is over.
  virtual bool in_callback() const { return false; }

  /// Under the lock: something has become ready. With `serve` a thread of the executor may begin
  /// it.
  void changed(Lock& lock, bool serve);
  /// Without the lock.
  static void complete(std::vector<Finished> finished);
  static Finished executed(WorkPtr work, std::exception_ptr error);

  mutable std::mutex mutex_;
  std::exception_ptr ended_; ///< why nothing more is accepted

 private:
  void serve();
  void run_step(Lock& lock, bool server);
  void ensure_server();

  std::condition_variable done_;      ///< a step is over
  std::condition_variable available_; ///< ready and nobody busy, or stop_
  std::list<std::thread> threads_;
  std::uint64_t steps_ = 0; ///< that have been begun
  int serving_ = 0;         ///< own threads that are not in callbacks
  bool busy_ = false;
  bool stop_ = false;
  bool serve_wanted_ = false; ///< own threads may begin what is ready
};

/// Operations in the order of issue.
class WorkQueue : public Executor {
 public:
  /// `cut_short` interrupts the calls that the bodies of the operations make.
  /// `depth` is that of the operations, see Origin.
  explicit WorkQueue(std::function<void()> cut_short, int depth = 0)
      : cut_short_(std::move(cut_short)), depth_(depth) {}
  /// With `serve` unset the caller will call help_until() at once.
  void push(const WorkPtr& work, bool serve);

 protected:
  bool ready() const override { return !queue_.empty(); }
  bool outstanding() const override { return running_ || !queue_.empty(); }
  std::vector<Finished> step(Lock& lock) override;
  std::vector<Finished> take_all(const std::exception_ptr& reason) override;
  void cut_short() override;
  void wait_for_callbacks(Deadline deadline) override;
  void release_callbacks() override { turns_->end(); }
  bool in_callback() const override { return CallbackScope::within(*turns_); }

 private:
  bool running_ = false;
  std::function<void()> cut_short_;
  const int depth_;
  const std::shared_ptr<Turns> turns_ = std::make_shared<Turns>();
  std::deque<WorkPtr> queue_;
};

} // namespace whorl_torch
