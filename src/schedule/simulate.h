#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "schedule/schedule.h"
#include "schedule/verify.h"

namespace whorl {

/// Costs of a message. A FIFO carries one message after the other; everything else takes no time
/// and lanes wait for nothing but messages, slots and each other. With the default the time is
/// counted in messages.
struct SimulationCosts {
  double message = 1.0; ///< α: time from the sender's step to the receiver's, for an empty message
  double chunk = 0.0;   ///< β: time for each chunk of the message
  int slots = 0;        ///< number of slots of each FIFO; 0: unlimited
};

/// One message of one window.
struct SimulatedMessage {
  int from, to, channel;
  double sent, received;
  std::uint32_t chunk; ///< index of its first chunk in the input of the ranks it comes from
  int count;           ///< number of chunks
  int contributions;   ///< number of ranks whose inputs are combined in it
  int source;          ///< lowest of these ranks
};

struct Simulation {
  std::vector<SimulatedMessage> messages; ///< ordered by sending time, sender, receiver
  double end = 0;                         ///< time at which the last message is received
};

/// Finds when which message travels in one window, under the given costs. The error says what
/// verify() would say of a schedule that cannot be executed; the result is not checked.
Result<Simulation> simulate(std::span<const Schedule> schedules, const CollectiveSpec& spec,
                            const SimulationCosts& costs = {});

} // namespace whorl
