#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

#include "perf/common/collective.h"

namespace perf {

/// Sizes of the blocks of one operation, together as large as `nranks` blocks of `count`: in each
/// pair of ranks the first has `place.skew` percent more than `count`, the second as much less.
class BlockSizes {
 public:
  BlockSizes(std::size_t count, const Place& place) {
    const auto n = static_cast<std::size_t>(place.nranks);
    const std::size_t more = count * static_cast<std::size_t>(place.skew) / 100;
    counts_.assign(n, count);
    for (std::size_t rank = 0; rank + 1 < n; rank += 2) {
      counts_[rank] += more;
      counts_[rank + 1] -= more;
    }
  }
  const std::size_t* data() const { return counts_.data(); }
  std::size_t of(int rank) const { return counts_[static_cast<std::size_t>(rank)]; }
  /// Returns the offset of a rank's block where the blocks lie side by side.
  std::size_t start(int rank) const {
    return std::accumulate(counts_.begin(), counts_.begin() + rank, std::size_t{0});
  }
  std::size_t total() const { return start(static_cast<int>(counts_.size())); }
  /// Returns the sizes of the blocks that `rank` sends: block j of the result is block (rank + j)
  /// mod n.
  BlockSizes rotated(int rank) const {
    BlockSizes other = *this;
    const std::size_t n = counts_.size();
    for (std::size_t j = 0; j < n; ++j) {
      other.counts_[j] = counts_[(j + static_cast<std::size_t>(rank)) % n];
    }
    return other;
  }
  /// Returns one segment for each rank: the whole block that this rank sends.
  std::vector<Segment> segments() const {
    std::vector<Segment> all;
    for (int rank = 0; rank < static_cast<int>(counts_.size()); ++rank) {
      all.push_back({start(rank), of(rank), rank, 0});
    }
    return all;
  }

 private:
  std::vector<std::size_t> counts_;
};

} // namespace perf
