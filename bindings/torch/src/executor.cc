#include "bindings/torch/src/executor.h"

#include <c10/util/ParallelGuard.h>
#include <pthread.h>
#include <sys/prctl.h>

#include "bindings/torch/src/errors.h"
#include "bindings/torch/src/signals.h"

namespace whorl_torch {
namespace {

// Programs that wait for each operation at once are spared the thread: it would have to be woken
// for each, and take the core from the one that waits. So after a wake-up the thread naps before it
// begins anything; after work it goes on napping for a while, and what is issued meanwhile wakes
// nobody. A waiter that comes within a nap carries the operation out itself; otherwise it begins at
// most a nap late.
constexpr std::chrono::microseconds kNap{60};
constexpr int kNaps = 10;

/// Steps of any executor that the calling thread is in.
thread_local int steps_under_way = 0;

} // namespace

bool Executor::in_step() noexcept { return steps_under_way > 0; }

bool Executor::help_until(const WhorlWork& work, std::optional<Deadline> deadline) {
  if (in_step()) {
    fail<c10::DistBackendError>(
        "whorl: the handler of a signal waits for other ranks while its thread waits for them "
        "already; let the handler raise an exception, or note the signal");
  }
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
    serve_wanted_ = serve_wanted_ || serve; // the thread that is busy may be a waiter, which leaves
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
  pthread_setname_np(pthread_self(), "whorl-torch");
  prctl(PR_SET_TIMERSLACK, 1000UL);      // nanoseconds; the default is as long as a nap
  const c10::ParallelGuard serial(true); // copies here take no cores from the training
  Lock lock(mutex_);
  const auto waiting = [this] { return !busy_ && serve_wanted_ && ready(); };
  int naps = kNaps;
  while (!stop_) {
    if (naps == 0 && !waiting()) {
      available_.wait(lock);
      naps = kNaps;
    }
    const bool before = waiting();
    const std::uint64_t steps = steps_;
    lock.unlock();
    std::this_thread::sleep_for(kNap);
    lock.lock();
    // One that lasts longer than a nap is worth a wake-up when the next one comes.
    naps = steps_ != steps ? kNaps : busy_ ? 0 : std::max(naps - 1, 0);
    if (!before || steps_ != steps) continue; // somebody else is at it, or may come yet
    while (!stop_ && waiting()) {
      run_step(lock, true);
      naps = kNaps;
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
  // While this thread runs callbacks it is not there for others.
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

void Executor::complete(std::vector<Finished> finished) {
  for (Finished& one : finished) one.work->complete(std::move(one.error));
}

void Executor::interrupt(std::exception_ptr reason) {
  std::vector<Finished> taken;
  {
    const Lock lock(mutex_);
    if (!ended_) ended_ = reason;
    taken = take_all(reason);
  }
  cut_short();
  done_.notify_all();
  complete(std::move(taken));
}

void Executor::close(std::chrono::milliseconds patience) {
  drain(patience);
  join();
}

void Executor::drain(std::chrono::milliseconds patience) {
  Lock lock(mutex_);
  if (!ended_) {
    ended_ = std::make_exception_ptr(c10::DistBackendError(
        {__func__, __FILE__, __LINE__}, "whorl: the process group has been shut down"));
  }
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (outstanding()) {
    if (ready() && !busy_) changed(lock, true);
    if (done_.wait_until(lock, deadline) == std::cv_status::timeout) break;
  }
  const bool interrupted = outstanding() || busy_;
  lock.unlock();
  if (interrupted) {
    interrupt(std::make_exception_ptr(c10::DistBackendError(
        {__func__, __FILE__, __LINE__},
        "whorl: the process group was shut down before the operation was complete")));
  }
  wait_for_callbacks(deadline);
}

void Executor::join() {
  release_callbacks(); // this may be one, whose end others wait for
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
  work->set_origin({turns_, turns_->take(), depth_});
  queue_.push_back(work);
  changed(lock, serve);
}

void WorkQueue::wait_for_callbacks(Deadline deadline) {
  if (CallbackScope::depth() == 0) turns_->wait_for_all(deadline);
}

void WorkQueue::cut_short() {
  turns_->end();
  cut_short_();
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
