#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "schedule/schedule.h"
#include "schedule/verify.h"

namespace whorl {

/// What a message costs. A FIFO carries one message after the other; everything else takes no time
/// and lanes wait for nothing but messages, slots and each other. With the default the time is
/// counted in messages.
struct SimulationCosts {
  double message = 1.0; ///< α: from the sender's step to the receiver's, for an empty message
  double chunk = 0.0;   ///< β: for each chunk of the message
  int slots = 0;        ///< of each FIFO; 0: as many as are wanted
};

/// One message of one window.
struct SimulatedMessage {
  int from, to, channel;
  double sent, received;
  std::uint32_t chunk; ///< which chunk of the input of the ranks it comes from; of the first
  int count;           ///< of chunks
  int contributions;   ///< ranks whose inputs are combined in it
  int source;          ///< the lowest of them
};

struct Simulation {
  std::vector<SimulatedMessage> messages; ///< by time of sending, then sender, then receiver
  double end = 0;                         ///< when the last message is received
};

/// When which message travels in one window, under the given costs. The error says what verify()
/// would say of a schedule that cannot be executed; the result is not checked.
Result<Simulation> simulate(std::span<const Schedule> schedules, const CollectiveSpec& spec,
                            const SimulationCosts& costs = {});

} // namespace whorl
