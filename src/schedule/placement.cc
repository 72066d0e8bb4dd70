#include "schedule/placement.h"

#include <map>
#include <tuple>

namespace whorl {

Placement::Placement(std::span<const Schedule> schedules, const Machine& machine)
    : fifos_(machine.fifos().size()) {
  std::map<std::tuple<int, int, int>, Received*> by_ends;
  for (std::size_t f = 0; f < fifos_.size(); ++f) {
    const Machine::Fifo& fifo = machine.fifos()[f];
    by_ends[{fifo.from, fifo.to, fifo.channel}] = &fifos_[f];
  }
  for (const Schedule& schedule : schedules) {
    for (const Lane& lane : schedule.lanes) {
      for (const Step& step : lane.steps) {
        const bool only_copies = step.copies() && !step.reduces() && step.dst == Buffer::kOutput;
        for (int i = 0; i < step.repeat; ++i) {
          for (int p = 0; p < step.fan_in(); ++p) {
            const auto peer = static_cast<int>(lane.peers[static_cast<std::size_t>(step.rx + p)]);
            Place place{.rank = schedule.rank};
            if (only_copies) {
              place.chunk = chunk_at(step.dst_chunk, step.stride, i, schedule.output_chunks);
              place.count = step.count;
            }
            by_ends.at({peer, schedule.rank, lane.channel})->in_window.push_back(place);
          }
        }
      }
    }
  }
}

Placement::Place Placement::next(std::uint32_t fifo) noexcept {
  Received& received = fifos_[fifo];
  if (received.in_window.empty()) return {}; // sent, but no step receives it
  Place place = received.in_window[received.next % received.in_window.size()];
  place.window = static_cast<int>(received.next / received.in_window.size());
  ++received.next;
  return place;
}

} // namespace whorl
