#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/schedule.h"

namespace whorl {

/// Renaming of the partners of a lane into those of a lane that is made from it. Sorts the partners
/// of each fan; partners that are next to each other in both lanes need no second entry.
class PeerMap {
 public:
  /// Puts the partners of the widest fans into `to`, so that single partners are found among them.
  /// `names[p]` is the new name of partner p. All arguments must outlive this.
  PeerMap(const Lane& from, std::span<const int> names, Lane& to);
  /// Sets the partners of `step`, a copy of a step of the old lane.
  void rename(Step& step);

 private:
  std::uint8_t find(int first, int fan);

  const Lane& from_;
  std::span<const int> names_;
  Lane& to_;
  std::vector<std::uint32_t> wanted_; ///< partners that find() looks for
};

/// Appends a step to a lane, or joins it with the last one if it continues that.
void append(Lane& lane, const Step& step);

/// Calls `visit(chunk, dst_chunk)` for each repetition of a step of `schedule`. An index that the
/// step does not use is 0.
template <class Visit>
void for_each_repetition(const Schedule& schedule, const Step& step, Visit visit) {
  for (int i = 0; i < step.repeat; ++i) {
    const auto at = [&](bool used, Buffer buffer, std::uint16_t first) {
      return used ? static_cast<int>(chunk_at(first, step.stride, i, schedule.chunks(buffer))) : 0;
    };
    visit(at(step.reads_src(), step.src, step.chunk),
          at(step.writes_dst(), step.dst, step.dst_chunk));
  }
}

} // namespace whorl
