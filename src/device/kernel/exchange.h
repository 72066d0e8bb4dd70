#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"
#include "gpu/exchange_messages.h"
#include "gpu/program.h"

// Collectives whose blocks may differ in size, between devices: kernels exchange the blocks as
// messages between pairs of ranks (gpu/exchange.h).
namespace whorl {

/// Returns the program of a rank that exchanges `blocks` of elements of `type`: the messages with
/// each rank.
std::vector<gpu::PairMessages> exchange_program(DataType type, const Blocks& blocks);

/// Returns how many blocks have something to do for a rank with such a program, at most
/// `launch.parts`; 0 if the rank neither sends nor receives anything. `launch.fifos` is set, too.
std::uint32_t exchange_blocks(const gpu::Launch& launch,
                              std::span<const gpu::PairMessages> program);

} // namespace whorl
