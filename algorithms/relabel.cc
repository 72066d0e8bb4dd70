#include "algorithms/relabel.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "algorithms/steps.h"

namespace whorl {
namespace {

/// Chunks of a schedule of places, where they lie in the schedule of a rank.
class Blocks {
 public:
  /// Adds to `made` the scratch that buffers of `places` need.
  Blocks(const Schedule& places, std::span<const int> order, Schedule& made)
      : places_(places), order_(order), per_block_(places.chunks_per_block) {
    for (const Buffer buffer : {Buffer::kInput, Buffer::kOutput}) {
      if (places.chunks(buffer) <= per_block_) continue; // one block at most
      How& how = how_[index(buffer)];
      how.renamed = true;
      if (!has_message_of_blocks(buffer)) continue;
      how.first_scratch = static_cast<int>(made.scratch.size());
      for (int chunk = 0; chunk < places.chunks(buffer); ++chunk) {
        made.scratch.push_back(static_cast<std::uint16_t>(chunk % per_block_));
      }
      // Scratch indices no longer wrap where they did.
      how_[index(Buffer::kScratch)].moved = true;
    }
    assert(made.scratch.size() <= std::numeric_limits<std::uint16_t>::max());
  }

  /// Returns whether the step has to be written anew.
  bool change(const Step& step) const {
    const auto changes = [&](Buffer buffer) {
      return how_[index(buffer)].renamed || how_[index(buffer)].moved;
    };
    return (step.reads_src() && changes(step.src)) || (step.writes_dst() && changes(step.dst));
  }
  /// Returns whether the buffer is in scratch.
  bool in_scratch(Buffer buffer) const { return how_[index(buffer)].first_scratch >= 0; }
  /// Sets buffer and index to those of the rank.
  void rename(Buffer& buffer, std::uint16_t& to, int chunk) const {
    const How& how = how_[index(buffer)];
    to = static_cast<std::uint16_t>(chunk);
    if (how.first_scratch >= 0) {
      to = static_cast<std::uint16_t>(how.first_scratch + chunk);
      buffer = Buffer::kScratch;
    } else if (how.renamed) {
      to = block_of(chunk);
    }
  }
  /// Returns the chunk of the rank's buffer, where that is not in scratch.
  std::uint16_t block_of(int chunk) const {
    const int rank = order_[static_cast<std::size_t>(chunk / per_block_)];
    return static_cast<std::uint16_t>(rank * per_block_ + chunk % per_block_);
  }
  /// Returns how many of `count` chunks from `chunk` on stay side by side.
  int together(Buffer buffer, int chunk, int count) const {
    const How& how = how_[index(buffer)];
    if (!how.renamed || how.first_scratch >= 0) return count;
    return std::min(count, per_block_ - chunk % per_block_);
  }

 private:
  struct How {
    bool renamed = false;   ///< whether there is a block for each rank
    bool moved = false;     ///< whether the buffer is larger than before
    int first_scratch = -1; ///< first scratch chunk of a buffer that is in scratch
  };
  static std::size_t index(Buffer buffer) { return static_cast<std::size_t>(buffer); }

  /// Returns whether a message has chunks of several blocks of the buffer.
  bool has_message_of_blocks(Buffer buffer) const {
    bool found = false;
    for (const Lane& lane : places_.lanes) {
      for (const Step& step : lane.steps) {
        if (step.count == 1 || (!step.sends() && !step.receives())) continue;
        for_each_repetition(places_, step, [&](int chunk, int dst_chunk) {
          const auto crosses = [&](bool used, Buffer in, int first) {
            return used && in == buffer && first % per_block_ + step.count > per_block_;
          };
          found = found || crosses(step.reads_src(), step.src, chunk) ||
                  crosses(step.writes_dst(), step.dst, dst_chunk);
        });
      }
    }
    return found;
  }

  const Schedule& places_;
  std::span<const int> order_;
  int per_block_;
  How how_[3];
};

/// Copies a buffer that is in scratch from the rank's input, or to the rank's output.
void copy_blocks(const Schedule& places, const Blocks& blocks, Buffer buffer, Lane& lane) {
  for (int chunk = 0; chunk < places.chunks(buffer); ++chunk) {
    Step step{.ops = kCopy};
    Buffer scratch = buffer;
    const bool loads = buffer == Buffer::kInput;
    blocks.rename(scratch, loads ? step.dst_chunk : step.chunk, chunk);
    (loads ? step.chunk : step.dst_chunk) = blocks.block_of(chunk);
    (loads ? step.dst : step.src) = scratch;
    append(lane, step);
  }
}

/// Appends a step of the places, message by message.
void rewrite(const Schedule& places, const Step& what, Step step, const Blocks& blocks,
             Lane& lane) {
  step.repeat = 1;
  step.stride = 0;
  for_each_repetition(places, what, [&](int chunk, int dst_chunk) {
    for (int done = 0; done < what.count;) {
      int count = what.count - done; // less than all only in a local copy
      step.src = what.src;
      step.dst = what.dst;
      if (what.reads_src()) count = blocks.together(what.src, chunk + done, count);
      if (what.writes_dst()) count = blocks.together(what.dst, dst_chunk + done, count);
      if (what.reads_src()) blocks.rename(step.src, step.chunk, chunk + done);
      if (what.writes_dst()) blocks.rename(step.dst, step.dst_chunk, dst_chunk + done);
      step.count = static_cast<std::uint16_t>(count);
      append(lane, step);
      done += count;
    }
  });
}

} // namespace

Schedule relabel(const Schedule& places, std::span<const int> order) {
  Schedule made = places;
  made.rank = order[static_cast<std::size_t>(places.rank)];
  made.lanes.clear();
  const Blocks blocks(places, order, made);
  const bool loads = blocks.in_scratch(Buffer::kInput), stores = blocks.in_scratch(Buffer::kOutput);
  assert(!(loads || stores) || places.lanes.size() == 1); // whose blocks are all chunks
  for (const Lane& from : places.lanes) {
    Lane lane{.channel = from.channel};
    PeerMap peers(from, order, lane);
    if (loads) copy_blocks(places, blocks, Buffer::kInput, lane);
    for (const Step& what : from.steps) {
      Step step = what;
      peers.rename(step);
      if (blocks.change(what)) {
        rewrite(places, what, step, blocks, lane);
      } else {
        lane.steps.push_back(step);
      }
    }
    if (stores) copy_blocks(places, blocks, Buffer::kOutput, lane);
    made.lanes.push_back(std::move(lane));
  }
  return made;
}

} // namespace whorl
