#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/request.h"
#include "exec/chunk_map.h"
#include "gpu/program.h"
#include "schedule/schedule.h"

namespace whorl {

/// Encodes a schedule for the interpreter on devices: a gpu::Program and its tables, a multiple of
/// 8 bytes. Returns an error for more than gpu::kMaxRanks ranks, or if a field is too small.
Result<std::vector<std::byte>> device_program(const Schedule& schedule);

/// Resources of a launch that the schedules of all ranks need.
struct DeviceLanes {
  std::uint32_t lanes = 0;    ///< largest number of lanes of any rank
  std::uint32_t channels = 0; ///< number of channels of one instance
};
DeviceLanes device_lanes(std::span<const Schedule> schedules);

/// Sets the vector of a launch, and the scratch memory that an instance of the schedules needs.
/// `in_bytes` is for launches that count bytes where the map counts elements of `bytes_of_element`.
void set_vector(gpu::Launch& launch, const ChunkMap& map, std::size_t bytes_of_element,
                bool in_bytes, std::span<const Schedule> schedules);

/// Sets the vector and the instances of a direct exchange (gpu/direct.h), each of which moves
/// gpu::kLineMessage bytes of every block.
void set_direct(gpu::Launch& launch, const Request& request);

} // namespace whorl
