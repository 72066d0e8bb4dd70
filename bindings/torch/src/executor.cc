#include "bindings/torch/src/executor.h"

#include <c10/util/ParallelGuard.h>
#include <pthread.h>
#include <sys/prctl.h>

#include <atomic>
#include <utility>

#include "bindings/torch/src/errors.h"
#include "bindings/torch/src/signals.h"

namespace whorl_torch {
namespace {

// A program that waits for each operation at once needs no server, which would have to be woken for
// each operation and would take the core from the thread that waits. So a server that was woken
// sleeps once before it begins anything; after work it goes on with short sleeps for a while, and
// what is issued meanwhile wakes nobody. A waiter that comes within a sleep carries the operation
// out itself; otherwise the operation begins at most a sleep late (docs/decisions/0011).
constexpr std::chrono::microseconds kPollInterval{60};
constexpr int kMaxIdlePolls = 10;

/// Number of steps, of any executors, that the calling thread is in.
thread_local int steps_under_way = 0;

// Time for which a thread stays at the end of the interpreter. The process usually ends before;
// whoever waits for the end of that thread goes on after it.
constexpr std::chrono::minutes kStay{1};
std::atomic<bool> interpreter_has_ended{false};
/// Whether the calling thread is a server, whose end the end of its group waits for.
thread_local bool serves = false;

} // namespace

void WaitOfProgram::interpreter_ends() noexcept { interpreter_has_ended.store(true); }

WaitOfProgram::~WaitOfProgram() {
  if (!interpreter_has_ended.load() || serves || on_main_thread()) return;
  std::this_thread::sleep_for(kStay);
}

/// Operations that the calling thread completes, one after the other.
struct Executor::Batch {
  explicit Batch(std::vector<Finished> operations)
      : finished(std::move(operations)), outer(std::exchange(innermost, this)) {}
  ~Batch() { innermost = outer; }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  std::vector<Finished> finished; ///< a work is null once its completion has begun
  Batch* const outer;             ///< batch a callback of which has begun this one
  static thread_local Batch* innermost;
};
thread_local Executor::Batch* Executor::Batch::innermost = nullptr;

bool Executor::in_step() noexcept { return steps_under_way > 0; }

void Executor::refuse_wait_in_step() {
  if (!in_step()) return;
  fail<c10::DistBackendError>(
      "whorl: the handler of a signal waits for other ranks while its thread waits for them "
      "already; let the handler raise an exception, or note the signal");
}

bool Executor::help_until(const WhorlWork& work, std::optional<Deadline> deadline) {
  refuse_wait_in_step();
  const bool may_help = !in_callback();
  Lock lock(mutex_);
  if (!may_help && !work.executed && ready()) changed(lock, true);
  while (!work.executed) {
    if (may_help && !busy_ && ready()) {
      run_step(lock, false);
      throw_if_interrupted();
      continue;
    }
    const auto woken = [&] { return work.executed || (may_help && !busy_ && ready()); };
    if (!wait_in_slices(done_, lock, deadline.value_or(Deadline::max()), woken)) {
      return work.executed;
    }
  }
  return true;
}

void Executor::changed(Lock&, bool serve) {
  if (busy_) {
    serve_wanted_ = serve_wanted_ || serve; // the thread in the step may be a waiter, which leaves
    if (serve) ensure_server();
    return;
  }
  if (!serve) return done_.notify_all();
  serve_wanted_ = true;
  ensure_server();
  available_.notify_one();
}

void Executor::ensure_server() {
  if (serving_ > 0 || stop_) return;
  ++serving_;
  threads_.emplace_back([self = shared_from_this()] { self->serve(); });
}

void Executor::serve() {
  serves = true;
  pthread_setname_np(pthread_self(), "whorl-torch");
  prctl(PR_SET_TIMERSLACK, 1000UL);      // nanoseconds; the default is as long as kPollInterval
  const c10::ParallelGuard serial(true); // copies here take no cores from the training
  Lock lock(mutex_);
  const auto waiting = [this] { return !busy_ && serve_wanted_ && ready(); };
  int polls_left = kMaxIdlePolls;
  while (!stop_) {
    if (polls_left == 0 && !waiting()) {
      available_.wait(lock);
      polls_left = kMaxIdlePolls;
    }
    const bool before = waiting();
    const std::uint64_t steps = steps_;
    lock.unlock();
    std::this_thread::sleep_for(kPollInterval);
    lock.lock();
    // After a step that lasts longer than a sleep the next one is worth a wake-up.
    polls_left = steps_ != steps ? kMaxIdlePolls : busy_ ? 0 : std::max(polls_left - 1, 0);
    if (!before || steps_ != steps) continue; // a waiter carries it out, or may still come
    while (!stop_ && waiting()) {
      run_step(lock, true);
      polls_left = kMaxIdlePolls;
    }
  }
  --serving_;
}

void Executor::run_step(Lock& lock, bool server) {
  busy_ = true;
  ++steps_;
  ++steps_under_way;
  std::vector<Finished> finished = step(lock);
  --steps_under_way;
  busy_ = false;
  const bool more = ready() && !stop_;
  if (!more) serve_wanted_ = false;
  done_.notify_all();
  // A server that runs callbacks carries out nothing meanwhile.
  const bool callbacks = !finished.empty();
  if (server && callbacks) --serving_;
  if (more && serve_wanted_) {
    ensure_server();
    available_.notify_one();
  }
  if (!callbacks) return;
  lock.unlock();
  complete(std::move(finished));
  lock.lock();
  if (server) ++serving_;
}

Executor::Finished Executor::executed(WorkPtr work, std::exception_ptr error) {
  work->executed = true;
  return {std::move(work), std::move(error)};
}

void Executor::complete_one(Finished& one) {
  if (const WorkPtr work = std::move(one.work)) work->complete(std::move(one.error));
}

void Executor::complete(std::vector<Finished> finished) {
  Batch batch(std::move(finished));
  for (Finished& one : batch.finished) complete_one(one);
}

void Executor::complete_before_wait(const WhorlWork& work) {
  for (Batch* batch = Batch::innermost; batch != nullptr; batch = batch->outer) {
    for (Finished& one : batch->finished) {
      if (one.work.get() == &work) return complete_one(one);
    }
  }
}

void Executor::interrupt(std::exception_ptr reason) {
  std::vector<Finished> taken;
  {
    const Lock lock(mutex_);
    if (!ended_) ended_ = reason;
    taken = take_all(reason);
  }
  cancel_calls();
  done_.notify_all();
  complete(std::move(taken));
}

void Executor::close(Deadline deadline) {
  drain(deadline);
  join();
}

void Executor::drain(Deadline deadline) {
  Lock lock(mutex_);
  if (!ended_) ended_ = shut_down_error();
  while (outstanding()) {
    if (ready() && !busy_) changed(lock, true);
    if (done_.wait_until(lock, deadline) == std::cv_status::timeout) break;
  }
  const bool interrupted = outstanding() || busy_;
  lock.unlock();
  if (interrupted) {
    interrupt(
        backend_error("whorl: the process group was shut down before the operation was complete"));
  }
  wait_for_callbacks(deadline);
}

void Executor::join() {
  release_callbacks(); // this may be a callback, whose end other callbacks wait for
  Lock lock(mutex_);
  stop_ = true;
  available_.notify_all();
  std::list<std::thread> threads = std::move(threads_);
  threads_.clear();
  lock.unlock();
  for (std::thread& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach(); // a callback drops the last reference to the group
    } else {
      thread.join();
    }
  }
}

void WorkQueue::push(const WorkPtr& work, bool serve) {
  work->set_executor(weak_from_this());
  Lock lock(mutex_);
  if (ended_) {
    std::vector<Finished> refused{executed(work, ended_)};
    lock.unlock();
    return complete(std::move(refused));
  }
  work->set_origin({order_, order_->issue(), depth_});
  queue_.push_back(work);
  changed(lock, serve);
}

void WorkQueue::wait_for_callbacks(Deadline deadline) {
  if (CallbackScope::depth() == 0) order_->wait_for_all(deadline);
}

void WorkQueue::cancel_calls() {
  order_->release();
  cancel_calls_();
}

std::vector<Executor::Finished> WorkQueue::step(Lock& lock) {
  WorkPtr work = std::move(queue_.front());
  queue_.pop_front();
  running_ = true;
  lock.unlock();
  std::exception_ptr error = work->run();
  lock.lock();
  running_ = false;
  std::vector<Finished> finished;
  finished.push_back(executed(std::move(work), std::move(error)));
  return finished;
}

std::vector<Executor::Finished> WorkQueue::take_all(const std::exception_ptr& reason) {
  std::vector<Finished> taken;
  for (WorkPtr& work : queue_) taken.push_back(executed(std::move(work), reason));
  queue_.clear();
  return taken;
}

} // namespace whorl_torch
