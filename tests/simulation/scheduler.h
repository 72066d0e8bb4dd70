#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "simulation/fibre.h"
#include "simulation/random.h"
#include "simulation/view.h"

namespace whorl::simulation {

/// Runs fibres in turns, in an order and by a clock that follow from the random numbers. Half of
/// the runs change the fibre at random, more or less often. The others run the fibre of the highest
/// priority, and lower priorities at random moments, which finds what needs a long delay of one
/// fibre at the right place. The clock goes on with each access, and jumps where all fibres sleep.
class Scheduler {
 public:
  static constexpr std::uint64_t kForEver = UINT64_MAX;

  /// Begins a new run. Forgets all fibres.
  void clear(Random& random);
  /// Adds a fibre, and returns its number.
  std::size_t add(std::function<void()> body);
  /// Adds a fibre of the running one's process, which dies with it. Returns its number, which is
  /// that of such a fibre that has ended once no number is left.
  std::size_t add_to_process(std::function<void()> body);
  /// Lets a fibre, and those of its process, die at its access number `access`.
  void kill_at(std::size_t fibre, std::uint64_t access) { fibres_[fibre].dies_at = access; }
  /// Lets the running fibre die in so many accesses.
  void kill_in(std::uint64_t accesses) {
    fibres_[current_].dies_at = fibres_[current_].accesses + accesses;
  }
  /// Stops the running fibre for a while in so many accesses, as a process that is stopped.
  void freeze_in(std::uint64_t accesses, std::uint64_t ns) {
    fibres_[current_].freezes_at = fibres_[current_].accesses + accesses;
    fibres_[current_].frozen_ns = ns;
  }
  /// Runs until all fibres have ended, died, or been stopped by stop().
  void run();

  // --- Called on a fibre ---

  std::size_t current() const noexcept { return current_; }
  /// Returns the first fibre of the running one's process; 0 outside of run().
  std::size_t process() const noexcept { return running_ ? fibres_[current_].process : 0; }
  bool running() const noexcept { return running_; }
  std::uint64_t now_ns() const noexcept { return now_ns_; }
  void advance(std::uint64_t ns) noexcept { now_ns_ += ns; }
  /// Lets time pass and others run before the access that the caller is about to make. May not
  /// return.
  void before_access();
  /// Sleeps until `wake_ns` or until wake(). Returns false when the time has passed.
  bool sleep(std::uint64_t wake_ns, const volatile void* word = nullptr);
  /// Wakes the fibres that sleep on `word`.
  void wake(const volatile void* word) noexcept;
  /// Ends the other fibres of the running one's process, as the end of a program does.
  void exit();
  /// Ends the run; does not return if a fibre calls.
  void stop();

  bool died(std::size_t fibre) const noexcept { return fibres_[fibre].state == State::kDead; }
  std::uint64_t died_ns(std::size_t fibre) const noexcept { return fibres_[fibre].died_ns; }
  /// Returns the time at which a process died or came to its end by exit(); kForEver: it has not.
  std::uint64_t process_died_ns(std::size_t process) const noexcept {
    return fibres_[process].process_died_ns;
  }
  bool ended(std::size_t fibre) const noexcept { return fibres_[fibre].state == State::kEnded; }
  std::size_t fibres() const noexcept { return used_; }
  std::uint64_t accesses() const noexcept { return accesses_; }

 private:
  enum class State : std::uint8_t { kReady, kSleeping, kDead, kEnded };
  struct Thread {
    Fibre fibre;
    std::size_t process = 0; ///< first fibre of its process
    State state = State::kEnded;
    std::uint64_t wake_ns = 0;
    const volatile void* word = nullptr; ///< word that wakes it
    bool woken = false;
    std::uint64_t accesses = 0;
    std::uint64_t dies_at = kForEver;
    std::uint64_t freezes_at = kForEver;
    std::uint64_t frozen_ns = 0; ///< time for which it is stopped then
    std::uint64_t died_ns = 0;
    std::uint64_t process_died_ns = kForEver; ///< in the first fibre of a process
    std::uint64_t priority = 0;
  };
  static constexpr std::size_t kNobody = kMaxFibres;

  void start(std::size_t fibre, std::size_t process, std::function<void()> body);
  void kill_process(std::size_t process);
  std::size_t choose();
  void switch_away();

  Random* random_ = nullptr;
  std::array<Thread, kMaxFibres> fibres_;
  std::size_t used_ = 0;
  std::size_t current_ = kNobody;
  std::size_t next_ = kNobody;
  bool running_ = false;
  bool stopped_ = false;
  std::uint64_t now_ns_ = 0;
  std::uint64_t accesses_ = 0;
  bool by_priority_ = false;
  unsigned switch_percent_ = 100;         ///< how often an access lets another fibre run
  std::vector<std::uint64_t> lowered_at_; ///< accesses at which a priority falls, descending
  std::uint64_t lowest_priority_ = 0;
};

} // namespace whorl::simulation
