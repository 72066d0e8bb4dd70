#pragma once

#include <cstddef>
#include <cstdint>

#include "base/membership.h"
#include "base/wait.h"
#include "transports/faulty/settings.h"

namespace whorl {

/// Faults of one transport: counts the messages that this rank hands over and finds, of all
/// endpoints together, and does to each what the settings ask for. Used by the thread that uses the
/// endpoints.
class FaultInjector {
 public:
  /// Takes the faults for this rank out of `settings`. `below`, which is asked for failures during
  /// a stall, and `membership` outlive the object.
  FaultInjector(const FaultySettings& settings, const Membership& membership, Waiter& below);

  /// Returns how long message `number` of a peer's channel is hidden after it has arrived: the same
  /// for equal seeds.
  std::uint64_t delay_ns(int peer, int channel, std::uint64_t number) const noexcept;
  /// Counts a message that goes to `peer` or has come from it, and strikes if a fault is due.
  void count_message(int peer) noexcept;
  /// Returns the size that a message of `bytes` has for the receiver; called once for each, after
  /// count_message().
  std::size_t received_bytes(std::size_t bytes) noexcept;
  /// Returns whether the communicator has failed, so that no message is to be found any more.
  bool failed() const noexcept { return membership_.comm_error->is_set(); }

 private:
  void strike(const Fault& fault, int peer) noexcept;
  void stall(std::uint64_t duration_ns) noexcept;

  FaultySettings settings_; ///< faults of this rank alone
  const Membership& membership_;
  Waiter& below_;
  std::uint64_t messages_ = 0;
  std::size_t next_fault_ = 0;
  bool truncates_ = false; ///< whether the next message with data loses its end
};

} // namespace whorl
