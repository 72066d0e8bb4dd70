// Peers for which an Execution waits: first messages before the output is written, messages of
// other operations, and the peer that is named to those who ask.
#include "exec/execution.h"

#include <algorithm>

namespace whorl {

/// Fails because of a message of a peer that is not one of this operation, or has not the expected
/// number of bytes.
void Execution::fail_on(std::uint32_t peer, const Fingerprint& theirs, std::size_t bytes,
                        std::size_t expected_bytes) noexcept {
  mismatch_ = {.peer = static_cast<int>(peer),
               .theirs = theirs,
               .bytes = bytes,
               .expected_bytes = expected_bytes};
  failed_ = true;
}

/// Returns whether the first message of each peer is there; fails if one is of another operation.
/// A rank sends its first messages to all before it writes its own output, so no rank waits here
/// for one that waits here, too.
bool Execution::hear_all() noexcept {
  for (; heard_lanes_ < active_lanes_; ++heard_lanes_, heard_peers_ = 0) {
    const LaneRun& lane = lanes_[heard_lanes_];
    for (; heard_peers_ < lane.endpoints.size(); ++heard_peers_) {
      Fingerprint theirs;
      if (!lane.endpoints[heard_peers_]->try_hear(theirs)) return false;
      if (theirs == binding_.fingerprint) continue;
      fail_on(lane.lane->peers[heard_peers_], theirs, 0, 0);
      return false;
    }
  }
  heard_all_ = true;
  // All messages of the only window are under way, or will go through slots.
  for (std::size_t i = 0; i < active_lanes_ && binding_.map.windows > 1; ++i) {
    lanes_[i].exposed.open = lanes_[i].can_expose && large_messages_;
    if (lanes_[i].exposed.open) begin_exposing(lanes_[i]);
  }
  return true;
}

/// Returns whether the peer behind `endpoint` still reads a source of this lane.
bool Execution::publishes_to(const LaneRun& lane, Endpoint& endpoint) noexcept {
  return std::any_of(lane.published.begin(), lane.published.end(), [&](const Publication& p) {
    return p.endpoint == &endpoint && endpoint.released() < p.number;
  });
}

Execution::Waiting Execution::waiting() const noexcept {
  if (binding_.pipeline != nullptr && !segment_active_) {
    return {.phase = "copying from the device", .for_device = true};
  }
  constexpr const char* kReleasing = "releasing sent buffers";
  for (std::size_t i = 0; i < active_lanes_; ++i) {
    const LaneRun& lane = lanes_[i];
    const auto rank_of = [&](std::size_t peer) { return static_cast<int>(lane.lane->peers[peer]); };
    const auto first_peer = [&](const auto& matters) {
      for (std::size_t p = 0; p < lane.endpoints.size(); ++p) {
        if (matters(*lane.endpoints[p])) return rank_of(p);
      }
      return -1;
    };
    if (lane.finished) {
      const int peer =
          first_peer([&](Endpoint& end) { return publishes_to(lane, end) || !settled(lane, end); });
      if (peer >= 0) return {.peer = peer, .phase = kReleasing};
      continue;
    }
    const Step& step = lane.lane->steps[lane.step];
    if (step.waits()) continue; // the loop finds the lane that this one waits for
    if (lane.phase == Phase::kSend) {
      return {.peer = rank_of(static_cast<std::size_t>(step.tx + lane.sent)), .phase = "sending"};
    }
    if (!heard_all_ && heard_lanes_ < active_lanes_ &&
        heard_peers_ < lanes_[heard_lanes_].endpoints.size()) {
      return {.peer = static_cast<int>(lanes_[heard_lanes_].lane->peers[heard_peers_]),
              .phase = "receiving"};
    }
    for (int f = 0; f < step.fan_in(); ++f) {
      const auto index = static_cast<std::size_t>(step.rx + f);
      if (!lane.endpoints[index]->try_peek()) return {.peer = rank_of(index), .phase = "receiving"};
    }
    const int peer = first_peer([&](Endpoint& end) { return publishes_to(lane, end); });
    if (peer < 0 && step.sends()) return {.peer = rank_of(step.tx), .phase = "sending"};
    return {.peer = peer, .phase = kReleasing};
  }
  return {};
}

} // namespace whorl
