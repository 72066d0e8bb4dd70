#pragma once

#include <algorithm>
#include <cstdint>

namespace whorl {

/// Beats that a rank sends to one peer while it waits, and the verdict that the peer cannot be
/// reached.
///
/// A beat is a small frame, which the peer's kernel acknowledges whatever the peer is doing, and
/// which this side's kernel sends again until it is: so outages are survived in which not all
/// repetitions fall. One beat at a time is on its way. A peer that never waits
/// does not read its beats, so their number is limited; beyond it the kernel's probes remain, which
/// take longer. Used by one thread at a time.
class Heartbeat {
 public:
  /// Time between two beats, unless one was lost. Shorter: more system calls. Longer: an end is
  /// noticed later.
  static constexpr std::uint64_t kIntervalNs = 150'000'000;
  /// Time without an acknowledgement that counts as an end. The kernel repeats a beat seven times
  /// at intervals of 0.2 s and a round trip (TCP_THIN_LINEAR_TIMEOUTS), or eight times with a probe
  /// for a lost tail, then after two and four such intervals. On a near network the last repetition
  /// before the end comes 2.6 to 2.72 s after the beat, with a probe 2.0 to 2.2 s. With the
  /// interval, less than 3 s.
  static constexpr std::uint64_t kSilenceNs = 2'800'000'000;
  /// Time without an acknowledgement after which other signs of life are looked for.
  static constexpr std::uint64_t kLateNs = 1'000'000'000;
  /// Time after which a beat or its acknowledgement counts as lost. Longer than acknowledgements
  /// are delayed.
  static constexpr std::uint64_t kLostNs = 300'000'000;
  /// Number of beats that follow a lost one, each as soon as the one before is acknowledged. Where
  /// only the acknowledgement was lost, the kernel may take the outage for a round trip, and would
  /// repeat the next lost beat after more than a second; so many beats bring its estimate from two
  /// seconds to less than half of one. A loss while this rank does not look is not noticed.
  static constexpr int kBeatsAfterLoss = 12;
  /// Longest time between two looks of a rank that waits.
  static constexpr std::uint64_t kLongestPauseNs = 1'000'000'000;
  /// Largest number of beats that the peer has not read.
  static constexpr std::uint32_t kMostUnread = 128;
  /// Number of beats whose reading is reported at once.
  static constexpr std::uint32_t kReadTogether = 32;

  enum class Action : std::uint8_t {
    kNone,
    kSend, ///< a beat is to be sent
    kEnd,  ///< the peer cannot be reached
  };
  /// Returns what is to be done; to be called more often than once in kLongestPauseNs, because
  /// after a longer pause the silence counts from its end on. `acknowledged`: nothing that was sent
  /// to the peer still waits for its acknowledgement.
  Action next(std::uint64_t now_ns, bool acknowledged) noexcept {
    if (now_ns - looked_ns_ > kLongestPauseNs)
      silent_since_ns_ = now_ns; // what it would have seen is unknown
    looked_ns_ = now_ns;
    if (on_its_way_ && !acknowledged) {
      if (now_ns - silent_since_ns_ >= kLostNs) at_once_ = kBeatsAfterLoss;
      return now_ns - silent_since_ns_ >= kSilenceNs ? Action::kEnd : Action::kNone;
    }
    on_its_way_ = false;
    const bool due = sent_ns_ == 0 || at_once_ > 0 || now_ns - sent_ns_ >= kIntervalNs;
    if (unread_ >= kMostUnread || !due) return Action::kNone;
    if (at_once_ > 0) --at_once_;
    on_its_way_ = true;
    sent_ns_ = silent_since_ns_ = now_ns;
    ++unread_;
    return Action::kSend;
  }
  /// Returns whether the last beat has waited for its acknowledgement for long, but not yet to the
  /// end.
  bool is_late(std::uint64_t now_ns) const noexcept {
    return on_its_way_ && now_ns - silent_since_ns_ >= kLateNs;
  }
  /// Counts another frame among the beats. Returns false if it must not be sent, because the peer
  /// has not read too many.
  bool add() noexcept {
    if (unread_ >= kMostUnread) return false;
    ++unread_;
    return true;
  }
  /// Takes the peer's report that it has read kReadTogether beats.
  void report() noexcept { unread_ -= std::min(unread_, kReadTogether); }
  /// Counts a beat of the peer. Returns whether a report to the peer is due.
  bool count() noexcept { return ++received_ % kReadTogether == 0; }

 private:
  std::uint64_t sent_ns_ = 0; ///< time of the last beat; 0: there was none
  std::uint64_t silent_since_ns_ = 0, looked_ns_ = 0;
  int at_once_ = 0;          ///< number of beats that are due without a pause
  bool on_its_way_ = false;  ///< whether no acknowledgement of the last beat has been seen
  std::uint32_t unread_ = 0; ///< beats that the peer has not reported as read
  std::uint32_t received_ = 0;
};

} // namespace whorl
