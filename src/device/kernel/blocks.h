#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "engine/request.h"

namespace whorl {

/// Returns whether the blocks of a request may differ in size.
inline bool has_blocks(const Request& request) noexcept {
  return request.blocks != nullptr || request.table != nullptr;
}

/// Returns the blocks that `rank` sends to and receives from each rank, with their addresses, of a
/// collective in which ranks have blocks of one size or of several. In a reduce-scatter each rank
/// sends a block of its input to each rank, and receives its result from each.
Blocks blocks_of(const Request& request, int rank, int nranks);

/// Smallest range of addresses that has all blocks with elements; null if none has.
struct Hull {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
};
Hull hull_of(std::span<const Blocks::Block> blocks, std::size_t element_size) noexcept;

/// Returns an error that names two ranks, if one of them sends another number of elements to the
/// other than that one expects; `blocks` are those of all ranks.
Status check_counts(const Request& request, std::span<const Blocks> blocks);

} // namespace whorl
