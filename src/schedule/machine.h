#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/verify.h"

namespace whorl {

/// Where chunks lie: maps every chunk of every rank to a number, the same number where in-place
/// buffers overlap. Input and output exist once for each window, scratch once for all.
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
  /// The cells of a rank are those up to the next rank's first.
  std::uint32_t first_cell(int rank) const noexcept {
    const auto index = static_cast<std::size_t>(rank);
    return index < ranks_.size() ? ranks_[index].first : cells_;
  }

 private:
  struct Rank {
    std::uint32_t first;
    std::uint32_t base[3];    ///< of kInput, kOutput, kScratch
    std::uint32_t user_cells; ///< of input and output together, for one window
  };
  std::vector<Rank> ranks_;
  std::uint32_t cells_ = 0;
};

/// Blocks of input and output that `rank` has in a collective of `nranks` ranks.
struct BufferBlocks {
  int input = 0, output = 0;
};
BufferBlocks blocks_of(const CollectiveSpec& spec, int nranks, int rank) noexcept;

/// One repetition of one step, at the moment it is done.
struct StepEvent {
  int rank, lane, step, repetition, window;
  int global_lane; ///< lanes of all ranks are numbered through
  const Step* what;
  std::uint16_t chunk, dst_chunk;    ///< of this repetition
  std::span<const std::uint32_t> rx; ///< FIFOs that one message each is taken from
  std::span<const std::uint32_t> tx; ///< FIFOs that one message each is put into
  bool first, last;                  ///< repetition of its step
};

/// What a Machine tells about.
class MachineObserver {
 public:
  virtual ~MachineObserver() = default;
  /// Called once for each repetition, in an order that the dependencies allow. False stops the
  /// machine.
  virtual bool on_step(const StepEvent& event) = 0;
};

struct MachineOptions {
  static constexpr int kUnlimited = std::numeric_limits<int>::max();
  int slots = kUnlimited;
  int windows = 1;
  bool published = false; ///< as VerifyOptions::published; needs a layout
};

/// Steps through the schedules of all ranks at once. Knows lanes, FIFOs, slots and waits, nothing
/// of data: that is up to the observer. A repetition is done at once as soon as all its messages
/// are there and all its slots are free. That is how an executor blocks, because it gives a receive
/// slot back only after it has sent.
class Machine {
 public:
  enum class End { kFinished, kDeadlock, kStopped };

  /// One direction between two ranks on one channel.
  struct Fifo {
    int from, to, channel;
    int sender = -1, receiver = -1; ///< global lanes; -1: no step of that rank uses it
    int sent = 0, received = 0;
  };

  /// Fields must be in range (check_fields()). The schedules and the layout must stay.
  Machine(std::span<const Schedule> schedules, const ChunkLayout* layout);

  /// Starts from the beginning each time.
  End run(const MachineOptions& options, MachineObserver* observer);

  std::span<const Fifo> fifos() const noexcept { return fifos_; }
  int lanes() const noexcept { return static_cast<int>(lanes_.size()); }
  /// After kDeadlock: a sentence on every lane that waits, and for what; of at most `limit` lanes.
  std::string describe_deadlock(int limit) const;

 private:
  struct LaneState {
    int rank, lane;
    const Schedule* schedule;
    const Lane* what;
    std::uint32_t first_tx, first_rx; ///< of fifo_of_peer_: one entry for each of the peers
    int first_lane;                   ///< global number of the rank's lane 0
    int step = 0, repetition = 0, window = 0;
    bool queued = false;
  };
  /// What a message published, until its receiver is done.
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
  std::vector<std::uint32_t> fifo_table_; ///< open addressing: number of a FIFO + 1, or 0
  std::vector<bool> rank_waits_;          ///< whether lanes of a rank wait for each other
  MachineOptions options_;
  std::vector<int> queue_;
  std::vector<std::uint32_t> held_;                 ///< of each cell: publications not released
  std::vector<std::vector<Publication>> published_; ///< of each FIFO: by message
};

/// "Rank 2, lane 0 (channel 0), step 1 (recv_reduce_send), repetition 3, window 0".
std::string describe(const Schedule& schedule, int lane, int step, int repetition = -1,
                     int window = -1);
/// "recv_reduce_send"; "final" is not part of it. Any value is allowed.
std::string ops_name(int ops);

} // namespace whorl
