#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "schedule/schedule.h"

namespace whorl {

class ScheduleBuilder;

/// Range of chunks inside a buffer that a lane treats as a circle: index i given to the lane is
/// chunk base + scale·(i mod size). The default is the whole buffer of each step.
struct ChunkRange {
  int base = 0;
  int size = 0;  ///< number of indices on the circle; 0: as many as fit in the buffer
  int scale = 1; ///< chunks for each index; a step moves count·scale chunks as one message
};

/// Builder of the steps of one lane. Indices of input and output chunks are signed and taken modulo
/// the range. Scratch indices are absolute; only counts and strides are multiplied by the range's
/// scale. Peers are ranks. Each call adds one step; repeat(), count() and final() change the step
/// added last; peers(), read(), write() and range() hold for the steps added later.
class LaneBuilder {
 public:
  /// Sets one partner each way. Ranks outside the communicator may be given where no step uses
  /// them.
  LaneBuilder& peers(int tx, int rx);
  /// Sets several partners at once, in any order: reducing receives use `rx`, sends of finished
  /// data use `tx`. A step that uses both needs equal numbers of them.
  LaneBuilder& peers(std::span<const int> tx, std::span<const int> rx);
  /// Sets the buffer that sends, copies and reductions read; default kInput.
  LaneBuilder& read(Buffer buffer);
  /// Sets the buffer that copies and local reductions write; default kOutput.
  LaneBuilder& write(Buffer buffer);
  /// Sets the circle for chunk indices.
  LaneBuilder& range(ChunkRange range);

  LaneBuilder& send(int chunk);
  LaneBuilder& copy(int chunk, int dst_chunk);
  LaneBuilder& reduce(int chunk, int dst_chunk);
  LaneBuilder& recv_copy(int dst_chunk);
  LaneBuilder& recv_copy_send(int dst_chunk);
  LaneBuilder& recv_reduce_send(int chunk);
  LaneBuilder& recv_reduce_copy(int chunk, int dst_chunk);
  LaneBuilder& recv_reduce_copy_send(int chunk, int dst_chunk);
  /// Waits until step `step` of lane `lane` is finished in this window. Both are numbered as they
  /// were added to the builder, from 0 on; build() finds the step's number in the schedule.
  LaneBuilder& wait(int lane, int step);

  /// Does the last step `times` times in all (0 removes it), its indices moving by `stride`.
  /// build() makes several steps of it where the indices wrap inside a range.
  LaneBuilder& repeat(int times, int stride);
  /// Makes the last step move `count` consecutive indices as one message. Where they wrap, it
  /// becomes several steps with a message each: if the partner's step names the same indices of an
  /// equal range, that step is cut at the same places. Where it does not (it keeps them in scratch,
  /// say), the verifier reports messages of different length.
  LaneBuilder& count(int count);
  /// Marks that the result of the last step has the contributions of all ranks.
  LaneBuilder& final();

 private:
  friend class ScheduleBuilder;
  /// Step before it is cut into pieces that can be encoded.
  struct Draft {
    std::uint8_t ops = 0;
    Buffer src = Buffer::kInput, dst = Buffer::kOutput;
    std::vector<int> tx, rx;
    ChunkRange range;
    int chunk = 0, dst_chunk = 0;
    int stride = 0, count = 1, repeat = 1;
  };
  explicit LaneBuilder(int channel) : channel_(channel) {}
  LaneBuilder& add(int ops, int chunk, int dst_chunk);
  Draft& last();

  int channel_;
  ChunkRange range_;
  Buffer src_ = Buffer::kInput, dst_ = Buffer::kOutput;
  std::vector<int> tx_, rx_;
  std::vector<Draft> drafts_;
};

/// Builder of the schedule of one rank. Aborts with a message (a defect of the algorithm) where a
/// schedule cannot be encoded: partners outside the communicator, more than 255 of them in a lane,
/// more than 65,535 chunks, a range or scratch index outside its buffer.
class ScheduleBuilder {
 public:
  /// Starts a schedule with `chunks_per_block` as in Schedule. Input and output have one block each
  /// unless blocks() says otherwise.
  ScheduleBuilder(int nranks, int rank, int chunks_per_block);
  /// Sets the number of blocks in this rank's input and output: 1, or nranks; 0 for none.
  ScheduleBuilder& blocks(int input, int output);
  /// Adds scratch chunks; entry i is the index within a block of the chunk that scratch chunk i
  /// holds. Returns the index of the first one.
  int scratch(std::span<const std::uint16_t> holds);
  int scratch(std::initializer_list<std::uint16_t> holds);
  /// Adds a lane on the endpoints of `channel`. The reference stays valid until build(). A lane
  /// that ends up without steps is left out of the schedule.
  LaneBuilder& lane(int channel);
  /// Sets the largest count of any rank's steps; must be the same on all ranks. Default: the
  /// largest of this rank.
  ScheduleBuilder& message_chunks(int chunks);
  Schedule build() &&;

 private:
  std::vector<std::uint32_t> collect_peers(LaneBuilder& lane) const;
  std::vector<Step> encode(const LaneBuilder::Draft& draft,
                           std::vector<std::uint32_t>& peers) const;

  Schedule schedule_;
  int message_chunks_ = 0; ///< value of Schedule::message_chunks; 0: find it
  std::vector<std::unique_ptr<LaneBuilder>> lanes_;
};

} // namespace whorl
