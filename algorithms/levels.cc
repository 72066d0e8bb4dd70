#include "algorithms/levels.h"

#include <algorithm>

namespace whorl {

std::vector<int> Level::group(int rank) const {
  std::vector<int> ranks;
  const int first = rank - of(rank) * distance;
  for (int i = 0; i < size; ++i) ranks.push_back(first + i * distance);
  return ranks;
}

std::vector<Level> levels_of(const Shape& shape) {
  std::vector<Level> levels;
  int distance = 1;
  for (const Dimension& dimension : shape.dims) {
    if (dimension.size > 1) levels.push_back({&dimension, dimension.size, distance});
    distance *= dimension.size;
  }
  return levels;
}

// Names that a collective lacks stand for a half of the algorithm: two-shot is a direct
// reduce-scatter and a direct all-gather.
const Algorithm* algorithm_of(std::string_view name, int size, Collective collective) {
  const bool all_reduce = collective == Collective::kAllReduce;
  if (name.empty()) {
    constexpr int kDirectRanks = 16; // beyond that a direct exchange has too many messages
    name = size <= kDirectRanks ? "direct" : "circulant";
    if (size > kDirectRanks && has_root(collective)) name = "tree";
  }
  if (name == "hierarchical") return nullptr;
  if (const Algorithm* algorithm = find_algorithm(collective, name)) return algorithm;
  if (name == "direct" && all_reduce) return find_algorithm(collective, "twoshot");
  if (name == "twoshot" || name == "oneshot") return find_algorithm(collective, "direct");
  if (name == "halving_doubling") return find_algorithm(collective, "doubling");
  if (name == "doubling") return find_algorithm(collective, "halving_doubling");
  return nullptr;
}

std::vector<Phase> phases_of(const std::vector<Level>& levels, Collective collective) {
  std::vector<Phase> phases;
  if (collective == Collective::kAllReduce) {
    for (const Level& level : levels) phases.push_back({&level, Collective::kReduceScatter});
    phases.back().collective = Collective::kAllReduce;
    for (auto level = levels.rbegin() + 1; level != levels.rend(); ++level) {
      phases.push_back({&*level, Collective::kAllGather});
    }
    return phases;
  }
  for (const Level& level : levels) phases.push_back({&level, collective});
  if (collective == Collective::kAllGather || collective == Collective::kBroadcast) {
    std::reverse(phases.begin(), phases.end());
  }
  return phases;
}

Schedule part_of(const Phase& phase, int rank) {
  return algorithm_of(*phase.level, phase.collective)
      ->build_place(phase.level->shape(0), phase.level->of(rank));
}

} // namespace whorl
