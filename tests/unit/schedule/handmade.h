#pragma once

#include <vector>

#include "schedule/schedule.h"
#include "schedule/verify.h"

namespace whorl::handmade {

/// Small schedules of known good algorithms, written with the builder only. Each function returns
/// the schedules of all `n` ranks.

/// Returns a fused reduce-scatter and all-gather around a ring: one chunk for each rank.
std::vector<Schedule> ring(int n);
/// Returns schedules in which rank r reduces chunk r of all ranks in one pass and sends it to all.
std::vector<Schedule> two_shot(int n);
/// Returns schedules up and down a binary heap with rank 0 on top, `chunks` chunks one after the
/// other.
std::vector<Schedule> tree(int n, int chunks);
/// Returns a tree that goes up on lane 0 and down on lane 1, which waits before it could overtake
/// lane 0.
std::vector<Schedule> two_lane_tree(int n);
/// Returns schedules in which every rank sends its input to all, keeps all inputs in scratch and
/// reduces there.
std::vector<Schedule> one_shot(int n);
/// Returns an all-gather around a ring, two chunks for each message.
std::vector<Schedule> ring_all_gather(int n);
/// Returns an all-to-all, with a message for each pair of ranks.
std::vector<Schedule> all_to_all(int n);
/// Returns a scatter in which the root sends every block to its rank.
std::vector<Schedule> scatter(int n, int root);

/// Schedules of all ranks and their collective.
struct Named {
  const char* name;
  CollectiveSpec spec;
  std::vector<Schedule> schedules;
};
/// Returns all of the above for `n` ranks.
std::vector<Named> all(int n);

} // namespace whorl::handmade
