#include "simulation/scheduler.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace whorl::simulation {

void Scheduler::clear(Random& random) {
  random_ = &random;
  used_ = 0;
  current_ = next_ = kNobody;
  running_ = stopped_ = false;
  now_ns_ = 1'000'000'000;
  accesses_ = 0;
  by_priority_ = random.chance(50);
  switch_percent_ = random.one_of(100U, 30U, 10U, 3U);
  lowered_at_.clear();
  for (std::uint64_t changes = random.below(5); changes > 0; --changes) {
    lowered_at_.push_back(random.below(random.one_of<std::uint64_t>(100, 400, 2000)));
  }
  std::sort(lowered_at_.rbegin(), lowered_at_.rend());
  lowest_priority_ = 1'000;
}

std::size_t Scheduler::add(std::function<void()> body) {
  start(used_, used_, std::move(body));
  return used_++;
}

std::size_t Scheduler::add_to_process(std::function<void()> body) {
  const std::size_t process = fibres_[current_].process;
  std::size_t fibre = used_;
  if (used_ < fibres_.size()) {
    ++used_;
  } else {
    for (fibre = 0; fibre < used_ && !(ended(fibre) && fibres_[fibre].process != fibre);) ++fibre;
    if (fibre == used_) throw std::length_error("too many fibres at once");
  }
  start(fibre, process, std::move(body));
  return fibre;
}

void Scheduler::start(std::size_t fibre, std::size_t process, std::function<void()> body) {
  Thread& thread = fibres_[fibre];
  thread.fibre.start(std::move(body));
  thread.process = process;
  thread.state = State::kReady;
  thread.wake_ns = thread.accesses = thread.died_ns = 0;
  thread.woken = false;
  thread.word = nullptr;
  thread.dies_at = thread.freezes_at = thread.process_died_ns = kForEver;
  thread.priority = 1'000 + random_->below(1'000);
}

void Scheduler::kill_process(std::size_t process) {
  fibres_[process].process_died_ns = now_ns_;
  for (std::size_t i = 0; i < used_; ++i) {
    Thread& thread = fibres_[i];
    if (thread.process != process || thread.state == State::kEnded) continue;
    thread.state = State::kDead;
    thread.died_ns = now_ns_;
  }
}

/// Returns the fibre that runs next, after letting time pass if all of them sleep; kNobody if none
/// is left, or only threads of programs that have come to their ends and wait for something.
std::size_t Scheduler::choose() {
  std::array<std::size_t, kMaxFibres> ready;
  std::size_t count = 0;
  std::size_t first_to_wake = kNobody;
  bool program_sleeps = false; // whether a fibre sleeps that is the first of its process
  for (std::size_t i = 0; i < used_; ++i) {
    Thread& thread = fibres_[i];
    if (thread.state == State::kSleeping) {
      if (first_to_wake == kNobody || thread.wake_ns < fibres_[first_to_wake].wake_ns) {
        first_to_wake = i;
      }
      program_sleeps |= thread.process == i;
      if (thread.wake_ns > now_ns_ && !thread.woken) continue;
    } else if (thread.state != State::kReady) {
      continue;
    }
    ready[count++] = i;
  }
  if (count == 0) {
    if (!program_sleeps) return kNobody;
    now_ns_ = fibres_[first_to_wake].wake_ns;
    return first_to_wake;
  }
  if (!by_priority_) return ready[random_->below(count)];
  return *std::max_element(ready.begin(), ready.begin() + count, [&](auto a, auto b) {
    return fibres_[a].priority < fibres_[b].priority;
  });
}

void Scheduler::run() {
  running_ = true;
  next_ = choose();
  while (!stopped_ && next_ != kNobody) {
    current_ = next_;
    Thread& thread = fibres_[current_];
    if (thread.state == State::kSleeping) thread.state = State::kReady;
    thread.fibre.resume();
    if (thread.fibre.ended()) {
      thread.state = State::kEnded;
      next_ = choose();
    }
  }
  current_ = kNobody;
  running_ = false;
}

void Scheduler::switch_away() { fibres_[current_].fibre.suspend(); }

void Scheduler::before_access() {
  Thread& self = fibres_[current_];
  ++accesses_;
  now_ns_ += 1 + random_->below(32);
  if (++self.accesses == self.dies_at) {
    kill_process(self.process);
    next_ = choose();
    switch_away();
  }
  if (self.accesses == self.freezes_at) sleep(now_ns_ + self.frozen_ns);
  if (by_priority_) {
    if (lowered_at_.empty() || lowered_at_.back() > accesses_) {
      // A fibre that has slept may have a higher priority.
      if (accesses_ % 16 != 0) return;
    } else {
      lowered_at_.pop_back();
      self.priority = --lowest_priority_;
    }
  } else if (!random_->chance(switch_percent_)) {
    return;
  }
  next_ = choose();
  if (next_ != current_) switch_away();
}

bool Scheduler::sleep(std::uint64_t wake_ns, const volatile void* word) {
  Thread& self = fibres_[current_];
  self.state = State::kSleeping;
  self.wake_ns = wake_ns;
  self.word = word;
  self.woken = false;
  next_ = choose();
  if (next_ != current_) switch_away();
  self.state = State::kReady;
  self.word = nullptr;
  return std::exchange(self.woken, false);
}

void Scheduler::wake(const volatile void* word) noexcept {
  for (std::size_t i = 0; i < used_; ++i) {
    Thread& thread = fibres_[i];
    if (thread.state == State::kSleeping && thread.word == word) thread.woken = true;
  }
}

void Scheduler::exit() {
  kill_process(fibres_[current_].process);
  fibres_[current_].state = State::kReady; // it comes to its end by itself
}

void Scheduler::stop() {
  stopped_ = true;
  if (running_) switch_away();
}

} // namespace whorl::simulation
