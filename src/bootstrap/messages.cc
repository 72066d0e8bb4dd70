#include "bootstrap/messages.h"

#include "base/status.h"

namespace whorl::bootstrap {

bool Contribution::sane() const noexcept {
  if (magic != kMagic) return false;
  switch (kind) {
    case ContributionKind::kData:
      return nranks >= 1 && nranks <= kMaxRanks && bytes <= kMaxContributionBytes &&
             std::uint64_t{nranks} * bytes <= kMaxTotalBytes;
    case ContributionKind::kLeaving:
      return true;
    case ContributionKind::kFailed:
      return bytes <= kMaxTextBytes && code >= 1 && code <= kLastErrorCode;
  }
  return false;
}

bool Answer::sane(std::uint32_t number, std::size_t size) const noexcept {
  if (magic != kMagic) return false;
  if (code != 0) return code <= kLastErrorCode && bytes <= kMaxTextBytes;
  return round == number && bytes == size;
}

} // namespace whorl::bootstrap
