#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"
#include "simulation/communicators.h"

namespace whorl::simulation {

/// One step of the program of a rank: an operation, and what the rank does before it.
struct Step {
  Collective collective = Collective::kBarrier; ///< kSend for either side of a transfer
  DataType type = DataType::kInt32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;     ///< root; of a transfer, the sender
  int receiver = 0; ///< of a transfer
  std::size_t count = 0;
  std::uint64_t pause_ns = 0; ///< time that the rank takes before the step
  bool concerns(int rank) const noexcept {
    return collective != Collective::kSend || rank == root || rank == receiver;
  }
};
using Program = std::vector<Step>;

/// Makes a program of a few operations among so many ranks.
Program make_program(int ranks);
/// Changes pauses of a program, so that a rank comes late to some steps, or much too late.
void add_pauses(Program& program, std::uint64_t most_ns);

/// Runs a program on the communicator of a rank; requires that each operation gives its result.
/// Ends with the first error, which it leaves in `rank`.
void run_program(CommRank& rank, const Program& program, int first_step = 0);

} // namespace whorl::simulation
