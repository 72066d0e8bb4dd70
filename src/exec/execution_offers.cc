// Where an Execution lets its peers write results.
#include <algorithm>

#include "exec/execution.h"

namespace whorl {

/// Whether peers are told where the step's messages are wanted: those that are only copied to the
/// output. Scratch still serves the window before when this one is prepared.
bool Execution::is_placed(const Step& step) noexcept {
  return step.receives() && !step.reduces() && step.dst == Buffer::kOutput;
}

bool Execution::takes_offers(const LaneRun& lane) noexcept {
  // Messages are counted by endpoint: none may be there twice, as in a lane that sends to ranks 1
  // and 3 at once, and receives from ranks 1 to 3.
  for (auto at = lane.endpoints.begin(); at != lane.endpoints.end(); ++at) {
    if (std::find(lane.endpoints.begin(), at, *at) != at) return false;
  }
  return std::any_of(lane.lane->steps.begin(), lane.lane->steps.end(), [&](const Step& step) {
    return is_placed(step) && lane.endpoints[step.rx]->places_ahead() > 0;
  });
}

/// Begins an operation whose messages may be placed: nothing is offered yet.
void Execution::enter_offers(LaneRun& lane) noexcept {
  lane.offers = {.open = true};
  for (std::size_t p = 0; p < lane.endpoints.size(); ++p) {
    lane.next_message[p] = lane.endpoints[p]->received() + 1;
  }
  offer_places(lane, 0);
}

/// Tells the peers of a lane where the messages up to the end of window `last` are wanted, as many
/// as they can be told ahead. So a peer that has the result can write it straight to the output:
/// that it does so at any time from the start of the window on is what VerifyOptions::placed proves
/// harmless.
void Execution::offer_places(LaneRun& lane, std::size_t last) noexcept {
  const std::vector<Step>& steps = lane.lane->steps;
  Offers& at = lane.offers;
  while (at.open && at.window <= last) {
    const Step& step = steps[at.step];
    if (is_placed(step)) {
      Endpoint& peer = *lane.endpoints[step.rx];
      const std::uint64_t number = lane.next_message[step.rx];
      const std::uint64_t limit = peer.received() + peer.places_ahead();
      if (number > limit && peer.places_ahead() > 0) return; // after the next release
      Operand place;
      const std::uint16_t chunk =
          chunk_at(step.dst_chunk, step.stride, at.repetition, binding_.schedule->chunks(step.dst));
      const std::size_t bytes = find(place, step.dst, at.window, chunk, step.count);
      if (number <= limit && place.whole && bytes >= kLeastSharedBytes) {
        at.open = peer.offer_place(number, {place.data, bytes}, binding_.fingerprint);
      }
    }
    for (int i = 0; i < step.fan_in(); ++i)
      ++lane.next_message[static_cast<std::size_t>(step.rx + i)];
    if (++at.repetition < step.repeat) continue;
    at.repetition = 0;
    if (++at.step < steps.size()) continue;
    at.step = 0;
    ++at.window;
  }
}

} // namespace whorl
