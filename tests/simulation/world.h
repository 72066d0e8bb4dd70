#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "simulation/arena.h"
#include "simulation/atomic_memory.h"
#include "simulation/race_detector.h"
#include "simulation/random.h"
#include "simulation/scheduler.h"

namespace whorl::simulation {

/// One run: fibres, the memory that they share, their clock, and whatever goes wrong. Everything
/// follows from the seed. There is one object in the program, which is used again for each run,
/// because the compiler's calls (instrumentation.cc) have no argument for it.
class World {
 public:
  static constexpr std::uint64_t kMaxAccesses = 400'000; ///< accesses after which a run has failed

  /// Begins a new run.
  void begin(std::uint64_t seed, bool trace);

  Random& random() noexcept { return random_; }
  std::uint64_t seed() const noexcept { return seed_; }
  Scheduler& scheduler() noexcept { return scheduler_; }

  /// Adds a fibre with a name for messages, and returns its number.
  std::size_t add(std::string name, std::function<void()> body);
  /// Adds a fibre of the running one's process, as a thread of it: see Scheduler::add_to_process().
  void add_to_process(std::string name, std::function<void()> body);
  /// Runs all fibres to their ends.
  void run();
  /// Returns the world whose fibres run; null while a run is prepared or judged.
  static World* running() noexcept { return running_; }

  /// Ends the run as failed; does not return if a fibre calls. Only the first failure counts.
  void fail(std::string what);
  template <class... Args>
  void require(bool condition, fmt::format_string<Args...> text, Args&&... args) {
    if (!condition) [[unlikely]]
      fail(fmt::format(text, std::forward<Args>(args)...));
  }
  /// Returns what went wrong; empty: nothing.
  const std::string& failure() const noexcept { return failure_; }
  /// Returns whether accesses to `address` are simulated.
  bool simulates(const volatile void* address) const noexcept { return arena_.holds(address); }

  /// Writes a line of the trace.
  template <class... Args>
  void note(fmt::format_string<Args...> text, Args&&... args) {
    if (trace_) [[unlikely]]
      write_note(fmt::format(text, std::forward<Args>(args)...));
  }

  /// Returns whether the death of a fibre has come to the knowledge of another one: some time after
  /// the death. What the dead one did then happened before.
  bool knows_death(std::size_t fibre);

  /// Returns the number of a view of all that happened before, for a message of the running fibre.
  std::size_t publish() { return running_ == nullptr ? 0 : atomics_.publish(scheduler_.current()); }
  /// Makes all that a view has happen before the next access of the running fibre, which has
  /// received the message.
  void observe(std::size_t view) {
    if (running_ != nullptr) atomics_.observe(scheduler_.current(), view);
  }
  /// Lets time pass and others run before a system call.
  void system_call() { before_access(); }

  // --- Accesses of the running fibre to the arena ---

  std::uint64_t load(const volatile void* at, std::size_t bytes, Order order);
  void store(volatile void* at, std::size_t bytes, std::uint64_t value, Order order);
  template <class Change>
  std::uint64_t modify(volatile void* at, std::size_t bytes, Order order, const char* what,
                       Change&& change) {
    before_store(at, bytes);
    std::uint64_t changed = 0;
    const std::uint64_t old = atomics_.modify(scheduler_.current(), at, bytes, order,
                                              scheduler_.now_ns(), [&](std::uint64_t value) {
                                                changed = change(value);
                                                return changed;
                                              });
    note_atomic(what, at, order, changed, old);
    return old;
  }
  /// Stores `desired` if the last value is `expected`. Returns the last value before.
  std::uint64_t compare_exchange(volatile void* at, std::size_t bytes, std::uint64_t expected,
                                 std::uint64_t desired, Order order, Order failure);
  void fence(Order order);
  void read(const volatile void* at, std::size_t bytes);
  void write(const volatile void* at, std::size_t bytes);
  /// Sleeps while `*word == expected`, as a futex.
  bool futex_wait(const volatile void* word, std::uint32_t expected, std::uint64_t timeout_ns);
  void futex_wake(const volatile void* word);

 private:
  void before_access();
  void before_store(const volatile void* at, std::size_t bytes);
  void note_atomic(const char* what, const volatile void* at, Order order, std::uint64_t value,
                   std::uint64_t other);
  void write_note(const std::string& text);
  void report(const Race& race, bool writes, std::size_t offset, std::size_t bytes);

  inline static World* running_ = nullptr;

  std::uint64_t seed_ = 0;
  bool trace_ = false;
  Random random_{0};
  Arena& arena_ = arena();
  Scheduler scheduler_;
  AtomicMemory atomics_;
  RaceDetector races_;
  std::array<std::string, kMaxFibres> names_;
  std::uint64_t death_notice_ns_ = 0; ///< time from a death until others may know
  std::string failure_;
};

World& world() noexcept;

} // namespace whorl::simulation
