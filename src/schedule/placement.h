#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/machine.h"

namespace whorl {

/// Where the messages of each FIFO end up, known when they are sent: the n-th message of a FIFO is
/// received by the n-th receive of the lane at its end. An executor knows it, too, and lets a peer
/// write a result there (see VerifyOptions::placed).
class Placement {
 public:
  Placement(std::span<const Schedule> schedules, const Machine& machine);

  /// The chunks that a message is only copied to.
  struct Place {
    int rank = 0, window = 0;
    std::uint16_t chunk = 0, count = 0; ///< of kOutput; count 0: the message has another purpose
  };
  /// Of the next message of a FIFO.
  Place next(std::uint32_t fifo) noexcept;

 private:
  struct Received {
    std::vector<Place> in_window; ///< in order
    std::size_t next = 0;
  };
  std::vector<Received> fifos_;
};

} // namespace whorl
