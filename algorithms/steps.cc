#include "algorithms/steps.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

namespace whorl {
namespace {

/// Makes `step` a further repetition of `last` if it continues `last`. Returns whether it does.
bool join(Step& last, const Step& step) {
  Step alike = step;
  alike.chunk = last.chunk;
  alike.dst_chunk = last.dst_chunk;
  alike.stride = last.stride;
  alike.repeat = last.repeat;
  if (step.repeat != 1 || !(alike == last) ||
      last.repeat == std::numeric_limits<std::uint16_t>::max()) {
    return false;
  }
  const int moved = last.stride * (last.repeat - 1);
  const int by = step.reads_src() ? step.chunk - (last.chunk + moved)
                                  : step.dst_chunk - (last.dst_chunk + moved);
  if (step.reads_src() && step.writes_dst() && step.dst_chunk != last.dst_chunk + moved + by) {
    return false;
  }
  if (last.repeat > 1 ? by != last.stride : by != static_cast<std::int16_t>(by)) return false;
  last.stride = static_cast<std::int16_t>(by);
  ++last.repeat;
  return true;
}

} // namespace

PeerMap::PeerMap(const Lane& from, std::span<const int> names, Lane& to)
    : from_(from), names_(names), to_(to) {
  std::vector<std::pair<int, int>> fans; // width, first partner
  for (const Step& step : from.steps) {
    if (step.fan_in() > 1) fans.emplace_back(step.fan_in(), step.rx);
    if (step.fan_out() > 1) fans.emplace_back(step.fan_out(), step.tx);
  }
  std::stable_sort(fans.begin(), fans.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [fan, first] : fans) find(first, fan);
}

void PeerMap::rename(Step& step) {
  assert(!step.waits()); // has a lane and a step instead of partners
  if (step.sends()) step.tx = find(step.tx, step.fan_out());
  if (step.receives()) step.rx = find(step.rx, step.fan_in());
}

/// Returns the index of `fan` consecutive entries of the new lane's partners; appends missing ones.
std::uint8_t PeerMap::find(int first, int fan) {
  wanted_.clear();
  for (int i = 0; i < fan; ++i) {
    const auto peer = from_.peers[static_cast<std::size_t>(first + i)];
    wanted_.push_back(static_cast<std::uint32_t>(names_[peer]));
  }
  std::sort(wanted_.begin(), wanted_.end());
  std::vector<std::uint32_t>& peers = to_.peers;
  const auto found = std::search(peers.begin(), peers.end(), wanted_.begin(), wanted_.end());
  const auto index = found - peers.begin();
  if (found == peers.end()) peers.insert(peers.end(), wanted_.begin(), wanted_.end());
  assert(peers.size() <= std::numeric_limits<std::uint8_t>::max());
  return static_cast<std::uint8_t>(index);
}

void append(Lane& lane, const Step& step) {
  if (lane.steps.empty() || !join(lane.steps.back(), step)) lane.steps.push_back(step);
}

} // namespace whorl
