#pragma once

#include <cstddef>
#include <optional>

#include "base/status.h"
#include "comm/communicator.h"
#include "engine/request.h"

namespace whorl {

/// A call whose blocks have different sizes, as the user made it: nothing has been checked. Where a
/// side is one block, its count is in the call and the arrays are not used.
struct RawBlocksCall {
  RawCall call;
  const std::size_t* send_counts = nullptr;
  const std::size_t* send_displacements = nullptr; ///< null: side by side
  const std::size_t* recv_counts = nullptr;
  const std::size_t* recv_displacements = nullptr; ///< null: side by side
};

/// Checks a call against the communicator. The request gets blocks, or a table where all ranks know
/// all blocks. Errors as those of check_call().
Status check_blocks(const RawBlocksCall& raw, const Communicator& communicator, Request& request);

/// The plain collective that a call stands for on every rank, if there is one: its blocks all have
/// one size. For a call with equal blocks that does not lie side by side there is none.
std::optional<RawCall> plain_form(const RawBlocksCall& raw, std::size_t nranks) noexcept;

} // namespace whorl
