#pragma once

#include <vector>

#include "schedule/schedule.h"
#include "schedule/verify.h"

namespace whorl::handmade {

/// Small schedules of known good algorithms, written with the builder only. Each returns the
/// schedules of all `n` ranks.

/// Fused reduce-scatter and all-gather around a ring: one chunk for each rank.
std::vector<Schedule> ring(int n);
/// Rank r reduces chunk r of all ranks in one pass and sends it to all.
std::vector<Schedule> two_shot(int n);
/// Up and down a binary heap with rank 0 on top, `chunks` chunks one after the other.
std::vector<Schedule> tree(int n, int chunks);
/// As tree(), up on lane 0 and down on lane 1, which waits for what it must not overtake.
std::vector<Schedule> two_lane_tree(int n);
/// Everybody sends everything to everybody, keeps it in scratch and reduces it there.
std::vector<Schedule> one_shot(int n);
/// All-gather around a ring, two chunks for each message.
std::vector<Schedule> ring_all_gather(int n);
/// All-to-all, a message for each pair of ranks.
std::vector<Schedule> all_to_all(int n);
/// The root sends every block to its rank.
std::vector<Schedule> scatter(int n, int root);

/// A schedule set and what it is meant to do.
struct Named {
  const char* name;
  CollectiveSpec spec;
  std::vector<Schedule> schedules;
};
/// All of the above for `n` ranks.
std::vector<Named> all(int n);

} // namespace whorl::handmade
