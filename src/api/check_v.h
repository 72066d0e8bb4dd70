#pragma once

#include <cstddef>
#include <optional>

#include "base/status.h"
#include "comm/communicator.h"
#include "engine/request.h"

namespace whorl {

/// An unchecked call whose blocks have different sizes. Where a side is one block, the count of
/// that block is in the call and the arrays are not used.
struct RawBlocksCall {
  RawCall call;
  const std::size_t* send_counts = nullptr;
  const std::size_t* send_displacements = nullptr; ///< null: side by side
  const std::size_t* recv_counts = nullptr;
  const std::size_t* recv_displacements = nullptr; ///< null: side by side
};

/// Checks a call against the communicator. The request gets blocks, or a table where all ranks know
/// all blocks. Errors are as those of check_call().
Status check_blocks(const RawBlocksCall& raw, const Communicator& communicator, Request& request);

/// Returns the plain collective that has the same effect on every rank, if all blocks of the call
/// have one size and lie side by side.
std::optional<RawCall> plain_form(const RawBlocksCall& raw, std::size_t nranks) noexcept;

} // namespace whorl
