#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"

namespace whorl {

/// An out-of-band way for the ranks of a communicator to exchange small things before they are
/// connected.
class Oob {
 public:
  virtual ~Oob() = default;
  /// Every rank passes `mine` and gets those of all ranks, in rank order, in `all`
  /// (nranks · mine.size() bytes). Every rank makes the same calls with the same sizes.
  virtual Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
};

}  // namespace whorl
