#pragma once

// Parameters of a launch of the interpreter (interpret.h): schedules in a form for the device, and
// one operation. Plain bytes, and programs of schedules have no pointers, so that a launch is a
// kernel parameter.

#include <cstddef>
#include <cstdint>

#include "gpu/fifo_layout.h"
#include "gpu/stop_words.h"

namespace whorl::gpu {

/// Flags of ProgramStep::flags.
enum StepFlag : std::uint8_t {
  kReadsSource = 1, ///< the rank's own chunks are an operand
  kWritesTarget = 2,
  kCombines = 4,      ///< several operands; otherwise one is copied
  kReadsTarget = 8,   ///< the target is the first operand
  kAllPresent = 16,   ///< the result has all contributions: averages are divided
  kWaitsForLane = 32, ///< the step only waits for a lane: rx is the lane, chunk its step
};
enum class ProgramBuffer : std::uint8_t { kInput, kOutput, kScratch };

/// Step (schedule/schedule.h) with the consequences of its operations spelled out. Read in words.
struct alignas(4) ProgramStep {
  std::uint8_t flags = 0;
  ProgramBuffer src = ProgramBuffer::kInput;
  ProgramBuffer dst = ProgramBuffer::kOutput;
  std::uint8_t fan_in = 0, fan_out = 0; ///< numbers of peers from rx, and from tx on
  std::uint8_t rx = 0, tx = 0;          ///< indices in the peers of the lane
  std::uint8_t own_at = 0; ///< number of operands before the rank's own, in ascending order
  std::uint16_t chunk = 0, dst_chunk = 0;
  std::int16_t stride = 0;
  std::uint16_t count = 1;
  std::uint16_t repeat = 1;
};
static_assert(sizeof(ProgramStep) == 20);

struct alignas(4) ProgramLane {
  std::uint16_t channel = 0;
  std::uint16_t first_step = 0, steps = 0; ///< range in the steps of the program
  std::uint16_t first_peer = 0, peers = 0;
};

/// Schedule of one rank; its lanes, steps, scratch chunks (16 bits: the index within a block that
/// each stands for) and peers (8 bits) follow, at these distances from its start.
struct alignas(4) Program {
  std::uint16_t lanes = 0;
  std::uint16_t input_chunks = 0, output_chunks = 0, scratch_chunks = 0;
  std::uint16_t lanes_at = 0, steps_at = 0, scratch_at = 0, peers_at = 0;
  std::uint16_t bytes = 0;        ///< size of everything, a multiple of 8
  std::uint16_t lanes_wait = 0;   ///< flag, 1: some lanes wait for each other
  std::uint16_t peers_repeat = 0; ///< flag, 1: a rank has two places among a lane's peers
};

/// Report of the wait in which a rank's first block failed. In host memory; that block writes it.
struct Report {
  std::uint32_t state;   ///< flag, 1: all fields are written; 0: none
  std::uint32_t expired; ///< flag, 1: the timeout passed; 0: other blocks had failed
  std::uint32_t peer;    ///< rank waited for; the own rank if a lane
  std::uint32_t phase;   ///< value of WaitPhase
  std::uint32_t lane, step;
  std::uint64_t window;
  std::uint64_t operation, count, timeout_ns; ///< values of the launch
};
enum class WaitPhase : std::uint32_t { kReceiving, kSending, kLane };

/// Way in which a launch carries out its operation.
enum class LaunchForm : std::uint32_t {
  kSchedule, ///< schedules in its programs
  kDirect,   ///< one round of small messages in lines (direct.h), without programs
  kExchange, ///< messages between pairs of ranks (exchange.h); a program is a list of PairMessages
};

/// Exchange of one block between each sender and each receiver, in one round (direct.h).
struct DirectForm {
  std::uint8_t splits;           ///< flag, 1: inputs have a block for each rank; 0: one for all
  std::uint8_t gathers;          ///< flag, 1: outputs have a block of each rank; 0: combined ones
  std::int16_t sender, receiver; ///< the only rank that sends, or receives; −1: all do

  WHORL_HOST_DEVICE bool sends(std::uint32_t rank) const {
    return sender < 0 || rank == static_cast<std::uint32_t>(sender);
  }
  WHORL_HOST_DEVICE bool receives(std::uint32_t rank) const {
    return receiver < 0 || rank == static_cast<std::uint32_t>(receiver);
  }
};

/// One operation on the ranks of one device, as parameter of its blocks. Ranks on other devices get
/// another launch at the same time, alike but for the ranks.
///
/// A schedule is run once for each window of the vector (exec/chunk_map.h). Windows do not depend
/// on each other, so `instances` copies of the schedule share them: instance i does windows i, i +
/// instances, …, on separate FIFOs. Block x of a rank is lane x % lanes of instance x / lanes.
struct Launch {
  struct Rank {
    const std::byte* input;
    std::byte* output;
    std::byte* scratch; ///< address of scratch_bytes for each instance
    std::uint32_t rank;
    std::uint32_t program; ///< offset in bytes from the start of the programs
  };
  static constexpr std::size_t kProgramBytes = 1280;

  // The vector, in elements, as in ChunkMap.
  std::uint64_t count, chunk, window, windows;
  std::uint32_t chunks_per_block;
  std::int32_t divisor; ///< divisor of sums: above 1 divides
  std::uint32_t instances;
  std::uint32_t lanes;         ///< largest number of lanes of any rank
  std::uint32_t lane_channels; ///< number of FIFOs of an instance to each peer
  std::uint32_t n_ranks;
  std::uint32_t stops_first; ///< flag, 1: blocks read `stop` before they begin
  LaunchForm form;
  std::uint32_t parts; ///< number of FIFOs among which an exchange divides a message
  DirectForm direct;
  std::uint64_t scratch_bytes; ///< multiple of 128
  std::uint64_t timeout_ns;    ///< longest time without progress
  std::uint64_t operation;     ///< number for the report
  FifoLayout fifos;
  StopWords* stop;               ///< words that end all launches
  Report* reports;               ///< reports in host memory, by rank
  const std::byte* programs;     ///< programs; null: those below
  std::byte* regions[kMaxRanks]; ///< regions of all ranks, as this device reaches them
  Rank ranks[kMaxRanks];
  alignas(8) std::byte inline_programs[kProgramBytes];
};
static_assert(sizeof(Launch) <= 4096); // limit of parameters on every device

} // namespace whorl::gpu
