// Receive buffers that an Execution exposes, so that peers write results to them.
#include <algorithm>

#include "exec/execution.h"

namespace whorl {

/// Returns whether receive buffers are exposed for the step's messages: only if they are just
/// copied to the output. Scratch is still in use by the window before when a window is prepared.
bool Execution::exposes_buffer(const Step& step) noexcept {
  return step.receives() && !step.reduces() && step.dst == Buffer::kOutput;
}

bool Execution::can_expose(const LaneRun& lane) noexcept {
  // Messages are counted by endpoint, so no endpoint may be there twice, as in a lane that sends to
  // ranks 1 and 3 at once, and receives from ranks 1 to 3.
  for (auto at = lane.endpoints.begin(); at != lane.endpoints.end(); ++at) {
    if (std::find(lane.endpoints.begin(), at, *at) != at) return false;
  }
  return std::any_of(lane.lane->steps.begin(), lane.lane->steps.end(), [&](const Step& step) {
    return exposes_buffer(step) && lane.endpoints[step.rx]->traits().recv_buffers_ahead > 0;
  });
}

/// Begins an operation that exposes receive buffers: none is exposed yet.
void Execution::begin_exposing(LaneRun& lane) noexcept {
  lane.exposed = {.open = true};
  for (std::size_t p = 0; p < lane.endpoints.size(); ++p) {
    lane.next_message[p] = lane.endpoints[p]->received() + 1;
  }
  expose_recv_buffers(lane, 0);
}

/// Exposes the lane's receive buffers for the messages up to the end of window `last`, as many as
/// its peers accept ahead. A peer that has the result can then write it directly to the output, at
/// any time from the start of the window on; VerifyOptions::placed proves that this does no harm.
void Execution::expose_recv_buffers(LaneRun& lane, std::size_t last) noexcept {
  const std::vector<Step>& steps = lane.lane->steps;
  ExposedEnd& at = lane.exposed;
  while (at.open && at.window <= last) {
    const Step& step = steps[at.step];
    if (exposes_buffer(step)) {
      Endpoint& peer = *lane.endpoints[step.rx];
      const std::uint64_t number = lane.next_message[step.rx];
      const std::uint64_t limit = peer.received() + peer.traits().recv_buffers_ahead;
      if (number > limit && peer.traits().recv_buffers_ahead > 0) return; // after the next release
      Operand operand;
      const std::uint16_t chunk =
          chunk_at(step.dst_chunk, step.stride, at.repetition, binding_.schedule->chunks(step.dst));
      const std::size_t bytes = find(operand, step.dst, at.window, chunk, step.count);
      if (number <= limit && operand.whole && bytes >= kMinSharedBytes) {
        at.open = peer.expose_recv_buffer(number, {operand.data, bytes}, binding_.fingerprint);
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
