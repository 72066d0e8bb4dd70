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

/// Returns whether a request combines blocks that may differ in size. Kernels that exchange
/// messages cannot.
inline bool has_uneven_sums(const Request& request) noexcept {
  return has_blocks(request) && reduces(request.collective);
}

/// Returns whether other ranks may have blocks that differ in size where this rank makes the call
/// `request`: if it has such blocks itself, or calls the plain form of a collective that may be
/// mixed with the other one.
inline bool may_meet_blocks(const Request& request) noexcept {
  return has_blocks(request) || request.collective == Collective::kAllGather ||
         request.collective == Collective::kReduceScatter;
}

/// Returns whether a collective has a form whose blocks may differ in size.
constexpr bool may_have_blocks(Collective collective) noexcept {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      return true;
    default:
      return false;
  }
}

/// Returns the blocks that `rank` sends to and receives from each rank, with their addresses. The
/// request has blocks, or is an all-gather or a reduce-scatter, of which some ranks may make the
/// plain call. In a reduce-scatter each rank sends a block of its input to each rank, and receives
/// its result from each.
Blocks blocks_of(const Request& request, int rank, int nranks);

/// Smallest range of addresses that has all blocks with elements; null if none has.
struct Hull {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
};
Hull hull_of(std::span<const Blocks::Block> blocks, std::size_t element_size) noexcept;

/// Returns an error that names two ranks, if `from` sends another number of elements to `to` than
/// that one expects.
Status check_count(const Request& request, std::size_t from, std::size_t to, std::size_t sent,
                   std::size_t expected);
/// Checks the counts of every two ranks; `blocks` are those of all ranks.
Status check_counts(const Request& request, std::span<const Blocks> blocks);

} // namespace whorl
