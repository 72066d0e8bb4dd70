#include "algorithms/least_time.h"

#include <algorithm>

#include "algorithms/crossing.h"

namespace whorl {

LeastTime least_time(Collective collective, const Shape& shape, std::size_t bytes,
                     const LinkCosts& links) {
  LeastTime least;
  if (shape.nranks < 2) return least;
  const double kib = static_cast<double>(bytes) / 1024;
  const auto raise = [&](double us, std::string limit) {
    if (us > least.us) least = {us, std::move(limit)};
  };
  const double crowd = std::max(1.0, links.ranks_per_core);
  raise(links.outermost().link.alpha_us / crowd, // some algorithm may leave cores to few ranks
        "a round on the " + std::string(name_of(links.outermost().scope)) + " level");
  raise(kib * links.copy_us_per_kib * crowd, "the ranks' memory");
  const std::vector<int> ranks(static_cast<std::size_t>(shape.nranks), 1);
  double rank_us_per_kib = links.levels.front().link.beta_us_per_kib;
  for (std::size_t level = 1; level < links.count; ++level) {
    rank_us_per_kib = std::min(rank_us_per_kib, links.levels.at(level).link.beta_us_per_kib);
  }
  raise(kib * rank_us_per_kib * least_crossing(collective, ranks), "the link of each rank");
  const auto all = divisions(shape);
  for (std::size_t level = 0; level < std::min(all.size(), links.count - 1); ++level) {
    std::vector<int> sizes;
    for (std::size_t i = 1; i < all[level].size(); ++i) {
      sizes.push_back(all[level][i] - all[level][i - 1]);
    }
    raise(
        kib * links.levels.at(level).boundary_us_per_kib * least_crossing(collective, sizes),
        "what crosses the boundary of each " + std::string(name_of(links.levels.at(level).scope)));
  }
  return least;
}

} // namespace whorl
