#include "engine/agreement.h"

namespace whorl {

Agreement agreement_of(const Algorithm& algorithm, std::size_t bytes, bool may_copy) noexcept {
  // Up to here a copy takes less time than to look for the first messages. A rank that does that
  // copies its own block later, not while messages are on their way.
  constexpr std::size_t kCheapBytes = 2048;
  // Less: more operations wait for a barrier. More: larger copies.
  constexpr std::size_t kMostCopiedBytes = 32768;
  switch (algorithm.collective) {
    case Collective::kAllGather:
    case Collective::kAllToAll:
    case Collective::kGather:
      if (may_copy && bytes <= kCheapBytes) return Agreement::kByCopy;
      if (algorithm.tells_all) return Agreement::kByFirstMessages;
      return may_copy && bytes <= kMostCopiedBytes ? Agreement::kByCopy : Agreement::kByBarrier;
    default:
      return Agreement::kByData;
  }
}

} // namespace whorl
