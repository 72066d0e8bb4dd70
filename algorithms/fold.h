#pragma once

#include "algorithms/common.h"

namespace whorl {

/// Ranks folded into a power of two, `core`. Of the first 2·(nranks−core) ranks the even ones are
/// extra: each is represented by its partner, the odd rank above it. The others have consecutive
/// virtual ranks 0 … core−1, so that neighbours stay near.
struct Fold {
  Fold(int nranks, int rank) : core(1 << floor_log2(nranks)), folded(nranks - core) {
    if (rank >= 2 * folded) {
      virtual_rank = rank - folded;
      return;
    }
    extra = rank % 2 == 0;
    partner = rank ^ 1;
    virtual_rank = rank / 2;
  }
  /// Returns the rank whose virtual rank differs from this one's in the bits of `mask`.
  int at(int mask) const noexcept {
    const int v = virtual_rank ^ mask;
    return v < folded ? 2 * v + 1 : v + folded;
  }

  int core;
  int folded;         ///< number of extra ranks
  int virtual_rank;   ///< virtual rank; of an extra rank: its partner's
  int partner = -1;   ///< rank that folds with this one; −1: none
  bool extra = false; ///< whether this rank takes no part in the exchanges of the core
};

} // namespace whorl
