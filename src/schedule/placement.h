#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/machine.h"

namespace whorl {

/// Targets of the messages of each FIFO, known when they are sent: the n-th message of a FIFO is
/// received by the n-th receive of the lane at its end. An executor knows the target, too, and lets
/// a peer write results directly to it (see VerifyOptions::placed).
class Placement {
 public:
  Placement(std::span<const Schedule> schedules, const Machine& machine);

  /// Chunks that a message is only copied to.
  struct Place {
    int rank = 0, window = 0;
    std::uint16_t chunk = 0, count = 0; ///< chunks of kOutput; count 0: another kind of message
  };
  /// Returns the place of the next message of a FIFO.
  Place next(std::uint32_t fifo) noexcept;

 private:
  struct Received {
    std::vector<Place> in_window; ///< places in order
    std::size_t next = 0;
  };
  std::vector<Received> fifos_;
};

} // namespace whorl
