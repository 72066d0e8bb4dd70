#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "exec/chunk_map.h"
#include "exec/move.h"
#include "schedule/schedule.h"

namespace whorl {

/// Memory of one rank for run_reference(). Unused buffers may be null.
struct ReferenceBuffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

/// Executes the schedules of all ranks in this thread, one window after the other, messages in
/// unbounded queues: slow, simple, and the bit-exact oracle for every other executor on the same
/// schedules and chunk map. The kernels should be scalar ones. An error (a lane that can never go
/// on, a message of the wrong size) is a defect of the schedules.
Status run_reference(std::span<const Schedule> schedules, const ChunkMap& map,
                     const MoveKernels& kernels, std::span<const ReferenceBuffers> buffers);

} // namespace whorl
