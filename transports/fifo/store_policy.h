#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace whorl {

/// The time of a message in picoseconds per byte.
inline std::uint32_t pace_of(std::uint64_t ns, std::size_t bytes) noexcept {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(ns * 1000 / bytes, UINT32_MAX));
}

/// Chooses how a sender fills its slots: with ordinary stores, or with streaming stores, which
/// bypass the caches.
///
/// An ordinary store into a line that the peer has read must first take the line away from the
/// peer's cache, and the peer then reads it from this core's. Where the two cores share a cache
/// both are quick. Where they do not, the first takes longer than all the rest, and streaming
/// stores win severalfold (docs/performance_rules.md). The topology does not tell, since the
/// virtual cores of a rented machine move. So each sender measures: from time to time a trial adds
/// the time in which it fills a slot and the time in which the receiver empties it, for the kind in
/// use and then for the other one.
///
///     settle A | timed A | settle B | timed B | settle | B or A …
///
/// It settles for as many messages as there are slots: then all have been filled in the new way,
/// and what was timed before has been received. Used by one thread.
class StorePolicy {
 public:
  /// With very many slots settling takes fewer messages than there are slots, so that a trial fits
  /// into a period.
  explicit StorePolicy(std::uint32_t slots) noexcept : slots_(std::min(slots, kMostSettling)) {}

  bool streaming() const noexcept { return streaming_; }
  /// Whether the next message belongs to a trial.
  bool on_trial() const noexcept { return step_ < 2 * half(); }
  /// Whether the next message is to be timed by both sides.
  bool timed() const noexcept { return on_trial() && step_ % half() >= slots_; }
  /// Whether filled() will want to know the receiver's pace.
  bool wants_pace() const noexcept {
    return step_ == half() + slots_ || step_ == 2 * half() + slots_;
  }
  /// A message has been filled: at which pace, if it was timed(); and the best pace at which the
  /// receiver has emptied the messages timed so far, if it wants_pace().
  void filled(std::uint32_t fill_pace, std::uint32_t empty_pace) noexcept {
    if (wants_pace()) {
      const std::uint64_t cost = std::uint64_t{best_fill_} + empty_pace;
      best_fill_ = UINT32_MAX;
      if (step_ < 2 * half()) {
        first_cost_ = cost;
      } else if (cost >= first_cost_) {
        streaming_ = !streaming_;
      }
    }
    if (timed()) best_fill_ = std::min(best_fill_, fill_pace); // of B from here on
    if (++step_ == half()) streaming_ = !streaming_;
    if (step_ == period_) {
      step_ = 0;
      period_ = std::min(2 * period_, kLongestPeriod);
    }
  }

 private:
  /// Timed messages of each kind; the quickest counts, because others may have been interrupted.
  static constexpr std::uint32_t kTimed = 4;
  /// Messages from one trial to the next; it doubles up to the longest, because the first messages
  /// are unusual ones. Shorter: what the losing kind costs weighs more. Longer: a change is noticed
  /// later, at 128 KiB a message after some 20 ms.
  static constexpr std::uint32_t kFirstPeriod = 256, kLongestPeriod = 2048;
  static constexpr std::uint32_t kMostSettling = 64;
  static_assert(3 * kMostSettling + 2 * kTimed < kFirstPeriod);

  std::uint32_t half() const noexcept { return slots_ + kTimed; }

  std::uint32_t slots_;
  std::uint32_t period_ = kFirstPeriod;
  std::uint32_t step_ = 0; ///< messages of the period so far
  bool streaming_ = false; ///< what is used now
  std::uint32_t best_fill_ = UINT32_MAX;
  std::uint64_t first_cost_ = 0;
};

} // namespace whorl
