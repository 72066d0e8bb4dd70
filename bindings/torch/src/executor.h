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

#include "bindings/torch/src/callback_order.h"
#include "bindings/torch/src/deadline.h"
#include "bindings/torch/src/work.h"

namespace whorl_torch {

/// Wait of a thread of the program, declared before anything that the wait locks. Once the
/// interpreter ends, a thread other than the main one does not return from it: Python ends a thread
/// that asks for its lock then, and unwinds functions of C++ that must not throw, which would end
/// the process.
struct WaitOfProgram {
  WaitOfProgram() = default;
  ~WaitOfProgram();
  WaitOfProgram(const WaitOfProgram&) = delete;
  WaitOfProgram& operator=(const WaitOfProgram&) = delete;
  /// Announces the end of the interpreter, before what is waited for is interrupted.
  static void interpreter_ends() noexcept;
};

/// Carrier of steps, one at a time. The thread that comes first carries a step out: a server, which
/// is a thread that the executor starts for asynchronous operations, or a thread that waits for one
/// of the operations. So an operation that is waited for at once costs no hand-over.
///
/// Completing an operation runs callbacks, and a callback may wait for a later operation of the
/// same executor. Therefore completion is no part of a step, and a server that is about to complete
/// something is replaced if there is more to do.
class Executor : public std::enable_shared_from_this<Executor> {
 public:
  virtual ~Executor() = default;

  /// Carries out steps, or waits while another thread does, until `work` is executed. Returns false
  /// if another thread's step has not executed it by the deadline; the calling thread cannot leave
  /// a step that it has begun. Throws what the handler of a signal raises meanwhile: a step of the
  /// calling thread has then failed, with its communicator, and a step of another thread goes on.
  bool help_until(const WhorlWork& work, std::optional<Deadline> deadline = std::nullopt);
  /// Returns whether the calling thread is in a step of any executor, as is the handler of a signal
  /// that interrupts the step.
  static bool in_step() noexcept;
  /// Throws if the calling thread is in a step, where help_until() would wait for the thread
  /// itself.
  static void refuse_wait_in_step();
  /// Completes `work` if the calling thread is to complete it after what it completes now, as in a
  /// callback that waits for a later operation.
  static void complete_before_wait(const WhorlWork& work);
  /// Calls drain() and join().
  void close(Deadline deadline);
  /// Waits until the deadline for the operations that are outstanding and for their callbacks;
  /// interrupts what is left then. Later operations fail.
  void drain(Deadline deadline);
  /// Ends the servers, except the calling thread; after drain().
  void join();
  /// Makes all operations that are outstanding fail with `reason`, and later ones.
  void interrupt(std::exception_ptr reason);

 protected:
  /// Operation that has been executed and is to be completed.
  struct Finished {
    WorkPtr work;
    std::exception_ptr error;
  };
  using Lock = std::unique_lock<std::mutex>;

  /// Returns whether there is a step to carry out. With the lock held.
  virtual bool ready() const = 0;
  /// Returns whether any operation has been accepted that is not executed. With the lock held.
  virtual bool outstanding() const = 0;
  /// Carries out one step, where there is one, and returns the operations that this has executed.
  /// With the lock held, which is released meanwhile.
  virtual std::vector<Finished> step(Lock& lock) = 0;
  /// Takes away all operations that nobody has begun, as failed with `reason`. With the lock held.
  virtual std::vector<Finished> take_all(const std::exception_ptr& reason) = 0;
  /// Makes a step that is under way return soon. Without the lock.
  virtual void cancel_calls() = 0;
  /// Waits until the callbacks of executed operations have run, unless the calling thread runs a
  /// callback itself. Without the lock.
  virtual void wait_for_callbacks(Deadline) {}
  /// Lets callbacks run in any order from now on. Without the lock.
  virtual void release_callbacks() {}
  /// Returns whether the calling thread runs a callback of one of this executor's operations. Such
  /// a thread carries out no other operation, whose callbacks would run before its own has
  /// returned.
  virtual bool in_callback() const { return false; }

  /// Announces that a step has become ready; with `serve` a server may begin it. With the lock
  /// held.
  void changed(Lock& lock, bool serve);
  /// Completes operations, which runs their callbacks. Without the lock.
  static void complete(std::vector<Finished> finished);
  /// Marks an operation executed. With the lock held.
  static Finished executed(WorkPtr work, std::exception_ptr error);

  mutable std::mutex mutex_;
  std::exception_ptr ended_; ///< reason why operations are refused; null: they are accepted

 private:
  struct Batch;
  static void complete_one(Finished& one);
  void serve();
  void run_step(Lock& lock, bool server);
  void ensure_server();

  std::condition_variable done_;      ///< notified when a step is over
  std::condition_variable available_; ///< notified when a step may be begun, or stop_
  std::list<std::thread> threads_;    ///< servers
  std::uint64_t steps_ = 0;           ///< number of steps that have been begun
  int serving_ = 0;                   ///< number of servers that are not in callbacks
  bool busy_ = false;                 ///< whether a step is under way
  bool stop_ = false;
  bool serve_wanted_ = false; ///< whether a server may begin what is ready
};

/// Queue of operations, which are executed in the order of issue.
class WorkQueue : public Executor {
 public:
  /// Makes an empty queue. `cancel_calls` interrupts the calls that the bodies of the operations
  /// make, `depth` is the depth of the operations, see Origin.
  explicit WorkQueue(std::function<void()> cancel_calls, int depth = 0)
      : cancel_calls_(std::move(cancel_calls)), depth_(depth) {}
  /// Queues an operation. With `serve` unset the caller calls help_until() at once.
  void push(const WorkPtr& work, bool serve);

 protected:
  bool ready() const override { return !queue_.empty(); }
  bool outstanding() const override { return running_ || !queue_.empty(); }
  std::vector<Finished> step(Lock& lock) override;
  std::vector<Finished> take_all(const std::exception_ptr& reason) override;
  void cancel_calls() override;
  void wait_for_callbacks(Deadline deadline) override;
  void release_callbacks() override { order_->release(); }
  bool in_callback() const override { return CallbackScope::within(*order_); }

 private:
  bool running_ = false; ///< whether the body of an operation is under way
  std::function<void()> cancel_calls_;
  const int depth_;
  const std::shared_ptr<CallbackOrder> order_ = std::make_shared<CallbackOrder>();
  std::deque<WorkPtr> queue_;
};

} // namespace whorl_torch
