#include "engine/agreement.h"

namespace whorl {

Agreement agreement_of(const Algorithm& algorithm, std::size_t bytes) noexcept {
  // Up to here a copy takes less time than to look for the first messages. A rank that does that
  // copies its own block later, not while messages are on their way.
  constexpr std::size_t kCheapBytes = 2048;
  // Less: more operations wait for a barrier. More: larger copies.
  constexpr std::size_t kMostCopiedBytes = 32768;
  switch (algorithm.collective) {
    case Collective::kAllGather:
    case Collective::kAllToAll:
    case Collective::kGather:
      if (bytes <= kCheapBytes) return Agreement::kByCopy;
      if (algorithm.tells_all) return Agreement::kByFirstMessages;
      return bytes <= kMostCopiedBytes ? Agreement::kByCopy : Agreement::kByBarrier;
    default:
      return Agreement::kByData;
  }
}

Agreement agreement_without_copy(const Algorithm& algorithm) noexcept {
  return algorithm.tells_all ? Agreement::kByFirstMessages : Agreement::kMissing;
}

} // namespace whorl
