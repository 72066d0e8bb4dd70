#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "exec/chunk_map.h"
#include "gpu/program.h"
#include "schedule/schedule.h"

namespace whorl {

/// A schedule as the interpreter of devices reads it: a gpu::Program and what follows it, a
/// multiple of 8 bytes. At most gpu::kMaxRanks ranks. An error if it does not fit into the fields.
Result<std::vector<std::byte>> device_program(const Schedule& schedule);

/// What the schedules of all ranks need of a launch.
struct DeviceLanes {
  std::uint32_t lanes = 0;    ///< most of any rank
  std::uint32_t channels = 0; ///< of one instance
};
DeviceLanes device_lanes(std::span<const Schedule> schedules);

/// Puts the vector into a launch, and how much scratch memory an instance of the schedules needs.
/// `element_size`: 1 for launches that count bytes of a map in larger elements.
void set_vector(gpu::Launch& launch, const ChunkMap& map, std::size_t bytes_of_element,
                bool in_bytes, std::span<const Schedule> schedules);

} // namespace whorl
