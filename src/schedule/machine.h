#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/verify.h"

namespace whorl {

/// Numbering of chunks by their place: every chunk of every rank has a number, the same number
/// where in-place buffers overlap. Input and output exist once for each window, scratch once for
/// all.
class ChunkLayout {
 public:
  ChunkLayout(std::span<const Schedule> schedules, const CollectiveSpec& spec, int windows);
  std::uint32_t cell(int rank, int window, Buffer buffer, int chunk) const noexcept {
    const Rank& place = ranks_[static_cast<std::size_t>(rank)];
    const auto base = place.base[static_cast<std::size_t>(buffer)];
    const auto moved = buffer == Buffer::kScratch ? 0U : place.user_cells;
    return base + moved * static_cast<std::uint32_t>(window) + static_cast<std::uint32_t>(chunk);
  }
  std::uint32_t cells() const noexcept { return cells_; }
  /// Returns a rank's first cell; its cells end before the next rank's first.
  std::uint32_t first_cell(int rank) const noexcept {
    const auto index = static_cast<std::size_t>(rank);
    return index < ranks_.size() ? ranks_[index].first : cells_;
  }

 private:
  struct Rank {
    std::uint32_t first;
    std::uint32_t base[3];    ///< first cells of kInput, kOutput, kScratch
    std::uint32_t user_cells; ///< number of cells of input and output together, for one window
  };
  std::vector<Rank> ranks_;
  std::uint32_t cells_ = 0;
};

/// Numbers of blocks in input and output of a rank.
struct BufferBlocks {
  int input = 0, output = 0;
};
BufferBlocks blocks_of(const CollectiveSpec& spec, int nranks, int rank) noexcept;

/// One repetition of one step, at the moment it is done.
struct StepEvent {
  int rank, lane, step, repetition, window;
  int global_lane; ///< number of the lane, counted across all ranks
  const Step* what;
  std::uint16_t chunk, dst_chunk;    ///< chunks of this repetition
  std::span<const std::uint32_t> rx; ///< FIFOs from which one message each is taken
  std::span<const std::uint32_t> tx; ///< FIFOs into which one message each is put
  bool first, last;                  ///< whether this is the step's first, last repetition
};

/// Receiver of a Machine's events.
class MachineObserver {
 public:
  virtual ~MachineObserver() = default;
  /// Handles one repetition; called in an order that the dependencies allow. Returns false to stop
  /// the machine.
  virtual bool on_step(const StepEvent& event) = 0;
};

struct MachineOptions {
  static constexpr int kUnlimited = std::numeric_limits<int>::max();
  int slots = kUnlimited;
  int windows = 1;
  bool published = false; ///< option VerifyOptions::published; needs a layout
};

/// Stepper through the schedules of all ranks at once. Knows lanes, FIFOs, slots and waits, but no
/// data: the observer keeps that. A repetition is done at once as soon as all its messages have
/// arrived and all its slots are free. An executor blocks likewise, because it gives a receive slot
/// back only after it has sent.
class Machine {
 public:
  enum class End { kFinished, kDeadlock, kStopped };

  /// One direction between two ranks on one channel.
  struct Fifo {
    int from, to, channel;
    int sender = -1, receiver = -1; ///< global lanes; -1: no step of that rank uses the FIFO
    int sent = 0, received = 0;
  };

  /// Takes schedules with fields in range (check_fields()). Schedules and layout must outlive this.
  Machine(std::span<const Schedule> schedules, const ChunkLayout* layout);

  /// Runs the schedules, from the beginning each time.
  End run(const MachineOptions& options, MachineObserver* observer);

  std::span<const Fifo> fifos() const noexcept { return fifos_; }
  int lanes() const noexcept { return static_cast<int>(lanes_.size()); }
  /// Describes after kDeadlock what each waiting lane waits for, a sentence each, for at most
  /// `limit` lanes.
  std::string describe_deadlock(int limit) const;

 private:
  struct LaneState {
    int rank, lane;
    const Schedule* schedule;
    const Lane* what;
    std::uint32_t first_tx, first_rx; ///< indices in fifo_of_peer_: one entry for each of the peers
    int first_lane;                   ///< global number of the rank's lane 0
    int step = 0, repetition = 0, window = 0;
    bool queued = false;
  };
  /// Cells that a message publishes until its receiver is done.
  struct Publication {
    std::uint32_t cell = 0, count = 0;
  };
  enum class Block { kNone, kMessage, kSlot, kLane, kRelease };
  struct Blocked {
    Block why = Block::kNone;
    std::uint32_t fifo = 0;
  };

  std::uint32_t fifo(int from, int to, int channel);
  Blocked blocked(const LaneState& lane) const;
  bool advance(LaneState& lane, MachineObserver* observer);
  void wake(int global_lane);
  void wake_rank(const LaneState& lane);

  std::span<const Schedule> schedules_;
  const ChunkLayout* layout_;
  std::vector<LaneState> lanes_;
  std::vector<std::uint32_t> fifo_of_peer_;
  std::vector<Fifo> fifos_;
  std::vector<std::uint32_t> fifo_table_; ///< hash table: number of a FIFO + 1, or 0
  std::vector<bool> rank_waits_;          ///< whether lanes of a rank wait for each other
  MachineOptions options_;
  std::vector<int> queue_;
  std::vector<std::uint32_t> held_;                 ///< publications not released, of each cell
  std::vector<std::vector<Publication>> published_; ///< publications of each FIFO, by message
};

/// Returns "Rank 2, lane 0 (channel 0), step 1 (recv_reduce_send), repetition 3, window 0".
std::string describe(const Schedule& schedule, int lane, int step, int repetition = -1,
                     int window = -1);
/// Returns "recv_reduce_send", without "final". Any value is allowed.
std::string ops_name(int ops);

} // namespace whorl
