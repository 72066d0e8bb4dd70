#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "schedule/schedule.h"

namespace whorl {

class ScheduleBuilder;

/// A range of chunks inside a buffer that a lane treats as a circle: indices given to the lane are
/// taken modulo `size`, multiplied by `scale` and moved by `base`. The whole buffer by default.
struct ChunkRange {
  int base = 0;
  int size = 0;
  int scale = 1; ///< chunks of the schedule for each index; steps then move `count`·scale chunks
};

/// Writes the steps of one lane. Chunk indices are signed and taken modulo the range; peers are
/// ranks. Each call adds one step; repeat() and from()/to() change the step added last.
class LaneBuilder {
 public:
  /// Default partner of later steps. Ranks outside the communicator may be given where unused.
  LaneBuilder& peers(int tx, int rx);
  /// Partners for steps with fan; ascending ranks.
  LaneBuilder& peers(std::span<const int> tx, std::span<const int> rx);
  /// Buffer that sends and reductions read from here on; default kInput.
  LaneBuilder& read(Buffer buffer);
  /// Buffer that copies write to from here on; default kOutput.
  LaneBuilder& write(Buffer buffer);
  /// Circle for chunk indices from here on.
  LaneBuilder& range(ChunkRange range);

  LaneBuilder& send(int chunk);
  LaneBuilder& copy(int chunk, int dst_chunk);
  LaneBuilder& reduce(int chunk, int dst_chunk);
  LaneBuilder& recv_copy(int dst_chunk);
  LaneBuilder& recv_copy_send(int dst_chunk);
  LaneBuilder& recv_reduce_send(int chunk);
  LaneBuilder& recv_reduce_copy(int chunk, int dst_chunk);
  LaneBuilder& recv_reduce_copy_send(int chunk, int dst_chunk);
  /// Waits until step `step` of lane `lane` is finished in this window.
  LaneBuilder& wait(int lane, int step);

  /// The last step is done `times` times in all (0 removes it), its indices moving by `stride`.
  /// Split into several steps where the indices wrap inside a range.
  LaneBuilder& repeat(int times, int stride);
  /// The last step moves `count` consecutive indices as one message; split where they wrap.
  LaneBuilder& count(int count);
  /// The result of the last step has the contributions of all ranks.
  LaneBuilder& final();

 private:
  friend class ScheduleBuilder;
  /// A step before it is cut into encodable pieces.
  struct Draft {
    std::uint8_t ops;
    Buffer src, dst;
    std::vector<int> tx, rx;
    ChunkRange range;
    int chunk, dst_chunk;
    int stride = 0, count = 1, repeat = 1;
  };
  LaneBuilder(int channel, ChunkRange range) : channel_(channel), range_(range) {}
  LaneBuilder& add(int ops, int chunk, int dst_chunk);

  int channel_;
  ChunkRange range_;
  Buffer src_ = Buffer::kInput, dst_ = Buffer::kOutput;
  std::vector<int> tx_, rx_;
  std::vector<Draft> drafts_;
};

/// Builds the schedule of one rank. Aborts (a defect of the algorithm) where a schedule cannot be
/// encoded: more than 255 peers in a lane, more than 65,535 chunks.
class ScheduleBuilder {
 public:
  /// `chunks_per_block` as in Schedule. Buffers have `chunks_per_block` chunks unless blocks() says
  /// otherwise.
  ScheduleBuilder(int nranks, int rank, int chunks_per_block);
  /// Number of blocks in this rank's input and output: 1, or nranks; 0 where it has none.
  ScheduleBuilder& blocks(int input, int output);
  /// Adds scratch chunks; entry i is the index within a block of the chunk that scratch chunk i
  /// holds. Returns the index of the first one.
  int scratch(std::span<const std::uint16_t> holds);
  int scratch(std::initializer_list<std::uint16_t> holds);
  /// A new lane on the endpoints of `channel`. The reference stays valid.
  LaneBuilder& lane(int channel);
  /// Largest count of any rank's steps; must be the same on all ranks. Default: of this rank.
  ScheduleBuilder& message_chunks(int chunks);
  Schedule build() &&;

 private:
  Schedule schedule_;
  std::vector<std::unique_ptr<LaneBuilder>> lanes_;
};

} // namespace whorl
