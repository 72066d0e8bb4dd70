#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace whorl {

/// Returns the time of a message in picoseconds per byte.
inline std::uint32_t pace_of(std::uint64_t ns, std::size_t bytes) noexcept {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(ns * 1000 / bytes, UINT32_MAX));
}

/// Number of sizes of messages that have a StorePolicy each: the kind of stores that suits messages
/// of 64 KiB may cost twice as much as the other one with messages of 8 KiB.
inline constexpr std::size_t kStoreClasses = 2;
constexpr std::size_t store_class(std::size_t bytes) noexcept { return bytes < 16 * 1024 ? 0 : 1; }

/// Choice of a sender between ordinary stores and non-temporal stores, which bypass the caches, for
/// filling its slots and ring.
///
/// An ordinary store into a line that the peer has read must first take the line away from the
/// peer's cache, and the peer then reads the line from this core's cache. If the two cores share a
/// cache, both are quick. Otherwise the first takes longer than everything else, and non-temporal
/// stores win severalfold (docs/performance_rules.md). The topology does not say which, since the
/// virtual cores of a rented machine move. So each sender measures: from time to time a trial adds
/// the time in which the sender fills a slot and the time in which the receiver empties it, for the
/// kind of stores in use and then for the other kind.
///
///     settle A | timed A | settle B | timed B | settle | B or A …
///
/// Settling takes as many messages as there are slots: then the messages timed before have been
/// received. Used by one thread.
class StorePolicy {
 public:
  /// Limits the messages of settling where there are very many slots, so that a trial fits into a
  /// period.
  explicit StorePolicy(std::uint32_t slots) noexcept : slots_(std::min(slots, kMaxSettling)) {}

  bool nontemporal() const noexcept { return nontemporal_; }
  /// Whether the next message belongs to a trial.
  bool on_trial() const noexcept { return step_ < 2 * half(); }
  /// Returns whether both sides are to time the next message.
  bool timed() const noexcept { return on_trial() && step_ % half() >= slots_; }
  /// Returns whether filled() needs the receiver's pace next.
  bool wants_pace() const noexcept {
    return step_ == half() + slots_ || step_ == 2 * half() + slots_;
  }
  /// Records that a message has been filled: `fill_pace` is its pace, if timed(), and `empty_pace`
  /// the best pace at which the receiver has emptied the messages timed so far, if wants_pace().
  void filled(std::uint32_t fill_pace, std::uint32_t empty_pace) noexcept {
    if (wants_pace()) {
      const std::uint64_t cost = std::uint64_t{best_fill_} + empty_pace;
      best_fill_ = UINT32_MAX;
      if (step_ < 2 * half()) {
        first_cost_ = cost;
      } else if (cost >= first_cost_) {
        nontemporal_ = !nontemporal_;
      }
    }
    if (timed()) best_fill_ = std::min(best_fill_, fill_pace); // of B from here on
    if (++step_ == half()) nontemporal_ = !nontemporal_;
    if (step_ == period_) {
      step_ = 0;
      period_ = std::min(2 * period_, kLongestPeriod);
    }
  }

 private:
  /// Number of timed messages of each kind; the quickest counts, because others may have been
  /// interrupted.
  static constexpr std::uint32_t kTimed = 4;
  /// Messages from one trial to the next, doubled up to the longest, because the first messages are
  /// unusual. Shorter: the slower kind costs more in all. Longer: a change is noticed later, at 64
  /// KiB a message after 20 ms, or 150 ms if the slower kind is in use.
  static constexpr std::uint32_t kFirstPeriod = 256, kLongestPeriod = 4096;
  static constexpr std::uint32_t kMaxSettling = 64;
  static_assert(3 * kMaxSettling + 2 * kTimed < kFirstPeriod);

  std::uint32_t half() const noexcept { return slots_ + kTimed; }

  std::uint32_t slots_;
  std::uint32_t period_ = kFirstPeriod;
  std::uint32_t step_ = 0;   ///< messages of the period so far
  bool nontemporal_ = false; ///< whether non-temporal stores are used now
  std::uint32_t best_fill_ = UINT32_MAX;
  std::uint64_t first_cost_ = 0;
};

} // namespace whorl
