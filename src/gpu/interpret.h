#pragma once

// Interpreter of schedules: one block runs one lane of an instance of a rank's program. One source
// text for the device and for the host, where a block is one thread (tests, the simulated driver).
// Does what Execution (exec/execution.h) does on the host, with the same bits, but sends every
// message through a slot.
//
// A repetition of a step has three parts, between two barriers of the block:
//
//     thread p waits for the message of peer p, and for a slot of it          │ barrier
//     all threads: operands ──load──▶ combined in registers ──▶ all targets   │ barrier
//     thread p publishes to peer p the counts of messages sent and taken
//
// Only thread p knows the counts of the lane's peer p, so nothing else has to be ordered, unless a
// rank has two places among the lane's peers. Data is read and written with ordinary accesses: they
// are ordered by the flag's acquire, or release, of one thread and the barriers between that thread
// and the others.
//
// Block provides threads, flags and clocks, as HostBlock in tests/support and DeviceBlock in
// interpret.cu do:
//   std::uint64_t index(), count()                 this thread among those of the block
//   void sync(); bool any(bool)                    barrier; and whether the value is true anywhere
//   std::uint64_t acquire(const std::uint64_t*)    reads a flag, for all devices and the host
//   void release(std::uint64_t*, std::uint64_t)    writes a flag, for all devices and the host
//   std::uint32_t look(const std::uint32_t*)       reads a word of the host
//   void publish(std::uint32_t*, std::uint32_t)    writes a word of the host, after earlier writes
//   std::uint32_t add(std::uint32_t*, std::uint32_t)
//                                                  adds atomically on this device; returns the old
//   std::uint64_t now_ns(); void pause()

#include "gpu/pieces.h"
#include "gpu/program.h"

namespace whorl::gpu {
namespace {

/// Interpreter of one block. Moves is one of the types in pieces.h, or has the same functions.
template <class Moves, class Block>
class Interpreter {
 public:
  /// Makes the interpreter of block (`x`, `y`) of the launch. `memory` is the block's own.
  WHORL_HOST_DEVICE Interpreter(const Launch& launch, std::uint32_t x, std::uint32_t y,
                                BlockMemory& memory, Block& block, Moves moves = {})
      : launch_(launch),
        block_(block),
        moves_(moves),
        memory_(memory),
        rank_(launch.ranks[y]),
        base_((launch.programs != nullptr ? launch.programs : launch.inline_programs) +
              launch.ranks[y].program),
        program_(*reinterpret_cast<const Program*>(base_)),
        block_number_(y * launch.lanes * launch.instances + x),
        instance_(x / launch.lanes),
        lane_index_(x % launch.lanes),
        lane_{} {}

  WHORL_HOST_DEVICE void run() {
    if (launch_.stops_first != 0 && block_is_to_stop()) return;
    if (lane_index_ >= program_.lanes) return;
    lane_ = reinterpret_cast<const ProgramLane*>(base_ + program_.lanes_at)[lane_index_];
    peers_ = reinterpret_cast<const std::uint8_t*>(base_ + program_.peers_at) + lane_.first_peer;
    channel_ = instance_ * launch_.lane_channels + lane_.channel;
    for_own_peers(0, lane_.peers, [&](std::uint32_t p) {
      memory_.taken[peers_[p]] = end(region(), false, peers_[p]).count;
      memory_.sent[peers_[p]] = end(region(), true, peers_[p]).count;
    });
    if (program_.lanes_wait != 0) number_ = head().launch + 1;
    if (!run_windows()) return;
    if (program_.peers_repeat != 0) block_.sync();
    for_own_peers(0, lane_.peers, [&](std::uint32_t p) {
      end(region(), false, peers_[p]).count = memory_.taken[peers_[p]];
      end(region(), true, peers_[p]).count = memory_.sent[peers_[p]];
    });
    if (program_.lanes_wait != 0) leave();
  }

 private:
  struct Range {
    std::byte* data;
    std::uint64_t elements;
  };

  WHORL_HOST_DEVICE const ProgramStep& step(std::uint32_t s) const {
    return reinterpret_cast<const ProgramStep*>(base_ + program_.steps_at)[lane_.first_step + s];
  }
  WHORL_HOST_DEVICE std::byte* region() const { return launch_.regions[rank_.rank]; }
  WHORL_HOST_DEVICE RegionHead& head() const { return *reinterpret_cast<RegionHead*>(region()); }
  WHORL_HOST_DEVICE FifoEnd& end(std::byte* region, bool sends, std::uint32_t peer) const {
    return *reinterpret_cast<FifoEnd*>(region + launch_.fifos.end_at(sends, peer, channel_));
  }
  WHORL_HOST_DEVICE std::uint64_t* progress(std::uint32_t lane) const {
    return &reinterpret_cast<LaneProgress*>(
                region() + launch_.fifos.progress_at())[instance_ * launch_.lanes + lane]
                .value;
  }

  /// Calls `f` for those of peers [first, last) that this thread handles.
  template <class F>
  WHORL_HOST_DEVICE void for_own_peers(std::uint32_t first, std::uint32_t last, F&& f) const {
    std::uint32_t p = static_cast<std::uint32_t>(block_.index());
    WHORL_DO_NOT_UNROLL
    for (; p < last; p += static_cast<std::uint32_t>(block_.count())) {
      if (p >= first) f(p);
    }
  }

  WHORL_HOST_DEVICE bool run_windows() {
    // Number of messages between two checks of the stop word, in a block that never waits for long:
    // a message takes some microseconds, and so does a check.
    constexpr std::uint32_t kMessages = 256;
    std::uint32_t finished = 0, messages = 0;
    WHORL_DO_NOT_UNROLL
    for (window_ = instance_; window_ < launch_.windows; window_ += launch_.instances) {
      if (messages >= kMessages) {
        if (block_is_to_stop()) return false;
        messages = 0;
      }
      WHORL_DO_NOT_UNROLL
      for (step_ = 0; step_ < lane_.steps; ++step_) {
        const ProgramStep s = step(step_); // a copy, so that the step is read once
        if (!run_step(s, finished)) return false;
        messages += s.repeat * (std::uint32_t{s.fan_in} + s.fan_out);
      }
      finished += lane_.steps;
    }
    return true;
  }

  /// Runs a step. `before`: number of steps that this lane has finished in earlier windows.
  WHORL_HOST_DEVICE bool run_step(const ProgramStep& s, std::uint32_t before) {
    if (program_.peers_repeat != 0) block_.sync();
    if ((s.flags & kWaitsForLane) != 0) {
      if (block_.any(!lane_arrives(s))) return false;
    } else {
      WHORL_DO_NOT_UNROLL
      for (std::uint32_t i = 0; i < s.repeat; ++i) {
        WHORL_DO_NOT_UNROLL
        for (std::uint32_t from = 0; from < s.count;) {
          // The first threads are busy with peers, so the last one finds the piece.
          if (block_.index() == block_.count() - 1) find_piece(s, i, from);
          if (block_.any(from == 0 && !peers_arrive(s))) return false;
          move_piece(s);
          from = memory_.piece.behind; // no thread finds another piece before the barrier
          block_.sync();
        }
        publish_counts(s);
      }
    }
    if (program_.lanes_wait != 0 && block_.index() == 0) {
      block_.release(progress(lane_index_), number_ << 32 | (before + step_ + 1));
    }
    return true;
  }

  // ---- waiting ----

  WHORL_HOST_DEVICE bool is_to_stop() const {
    return block_.look(launch_.stop->of_block(block_number_)) != 0;
  }
  /// Returns the same on all threads of the block. A barrier.
  WHORL_HOST_DEVICE bool block_is_to_stop() const {
    return block_.any(block_.index() == 0 && is_to_stop());
  }

  WHORL_HOST_DEVICE bool peers_arrive(const ProgramStep& s) {
    bool good = true;
    for_own_peers(s.rx, s.rx + s.fan_in, [&](std::uint32_t p) {
      const std::uint64_t number = memory_.taken[peers_[p]];
      good = good && wait(&end(region(), false, peers_[p]).flag, number + 1, WaitPhase::kReceiving,
                          peers_[p]);
      const std::uint32_t k = p - s.rx;
      memory_.sources[k < s.own_at ? k : k + 1] =
          region() + launch_.fifos.slot_at(peers_[p], channel_, number);
    });
    for_own_peers(s.tx, s.tx + s.fan_out, [&](std::uint32_t p) {
      const std::uint64_t number = memory_.sent[peers_[p]];
      good = good && (number < launch_.fifos.slots ||
                      wait(&end(region(), true, peers_[p]).flag, number + 1 - launch_.fifos.slots,
                           WaitPhase::kSending, peers_[p]));
      memory_.targets[p - s.tx + ((s.flags & kWritesTarget) != 0 ? 1 : 0)] =
          launch_.regions[peers_[p]] + launch_.fifos.slot_at(rank_.rank, channel_, number);
    });
    return good;
  }

  /// Waits for the lane that a step names; that lane's steps are counted as it counts them.
  WHORL_HOST_DEVICE bool lane_arrives(const ProgramStep& s) {
    if (block_.index() != 0) return true;
    const auto& other = reinterpret_cast<const ProgramLane*>(base_ + program_.lanes_at)[s.rx];
    const auto round = static_cast<std::uint32_t>(window_ / launch_.instances);
    return wait(progress(s.rx), number_ << 32 | (round * other.steps + s.chunk + 1),
                WaitPhase::kLane, rank_.rank);
  }

  WHORL_HOST_DEVICE void publish_counts(const ProgramStep& s) {
    for_own_peers(s.tx, s.tx + s.fan_out, [&](std::uint32_t p) {
      block_.release(&end(launch_.regions[peers_[p]], false, rank_.rank).flag,
                     ++memory_.sent[peers_[p]]);
    });
    for_own_peers(s.rx, s.rx + s.fan_in, [&](std::uint32_t p) {
      block_.release(&end(launch_.regions[peers_[p]], true, rank_.rank).flag,
                     ++memory_.taken[peers_[p]]);
    });
  }

  /// Waits until a flag has reached `value`. Returns false if the timeout passed, or all are to
  /// stop.
  WHORL_HOST_DEVICE bool wait(const std::uint64_t* flag, std::uint64_t value, WaitPhase phase,
                              std::uint32_t peer) {
    // One read of host memory takes as long as many reads of the flag.
    constexpr int kLooks = 64;
    std::uint64_t begin = 0;
    for (;;) {
      WHORL_DO_NOT_UNROLL
      for (int look = 0; look < kLooks; ++look) {
        if (block_.acquire(flag) >= value) return true;
        block_.pause();
      }
      const std::uint64_t now = block_.now_ns();
      if (begin == 0) begin = now;
      const bool expired = now - begin > launch_.timeout_ns;
      if (!expired && !is_to_stop()) continue;
      report(phase, peer, expired);
      if (expired) stop_all();
      return false;
    }
  }

  WHORL_HOST_DEVICE void stop_all() const {
    WHORL_DO_NOT_UNROLL
    for (std::uint32_t w = StopWords::kWords; w > 0; --w) {
      block_.publish(&launch_.stop->words[w - 1].value, 1);
    }
  }

  WHORL_HOST_DEVICE void report(WaitPhase phase, std::uint32_t peer, bool expired) {
    if (block_.add(&head().reported, 1) != 0) return;
    Report& report = launch_.reports[rank_.rank];
    report.expired = expired ? 1 : 0;
    report.peer = peer;
    report.phase = static_cast<std::uint32_t>(phase);
    report.lane = lane_index_;
    report.step = step_;
    report.window = window_;
    report.operation = launch_.operation;
    report.count = launch_.count;
    report.timeout_ns = launch_.timeout_ns;
    block_.publish(&report.state, 1);
  }

  /// Ends the launch if this block is the last one of its rank to leave.
  WHORL_HOST_DEVICE void leave() const {
    block_.sync(); // no thread of this block needs the number any more
    if (block_.index() != 0) return;
    const std::uint32_t blocks = program_.lanes * launch_.instances;
    if (block_.add(&head().left, 1) + 1 < blocks) return;
    head().left = 0;
    head().launch = number_;
  }

  // ---- moving ----

  /// Returns a chunk, as ChunkMap::range() does.
  WHORL_HOST_DEVICE Range chunk(ProgramBuffer buffer, std::uint32_t index) const {
    const bool scratch = buffer == ProgramBuffer::kScratch;
    const std::uint32_t stands_for =
        scratch ? reinterpret_cast<const std::uint16_t*>(base_ + program_.scratch_at)[index]
                : index;
    const std::uint32_t per_block = launch_.chunks_per_block;
    const std::uint32_t block = stands_for < per_block ? 0 : stands_for / per_block; // mostly 0
    const std::uint64_t first =
        window_ * launch_.window + (stands_for - block * per_block) * launch_.chunk;
    const std::uint64_t begin = first < launch_.count ? first : launch_.count;
    const std::uint64_t behind = first + launch_.chunk;
    const std::uint64_t size = (behind < launch_.count ? behind : launch_.count) - begin;
    if (scratch) {
      return {rank_.scratch + instance_ * launch_.scratch_bytes +
                  index * launch_.chunk * moves_.element(),
              size};
    }
    std::byte* const base = buffer == ProgramBuffer::kInput
                                ? const_cast<std::byte*>(rank_.input) // only read
                                : rank_.output;
    return {base + (block * launch_.count + begin) * moves_.element(), size};
  }

  WHORL_HOST_DEVICE std::uint32_t first_chunk(ProgramBuffer buffer, std::uint32_t first,
                                              std::int32_t stride, std::uint32_t i) const {
    if (i == 0) return first;
    const std::int32_t chunks = buffer == ProgramBuffer::kInput    ? program_.input_chunks
                                : buffer == ProgramBuffer::kOutput ? program_.output_chunks
                                                                   : program_.scratch_chunks;
    const std::int32_t index =
        (static_cast<std::int32_t>(first) + stride * static_cast<std::int32_t>(i)) % chunks;
    return static_cast<std::uint32_t>(index < 0 ? index + chunks : index);
  }

  /// Finds the piece of repetition i of a step that begins `from` chunks behind the step's first
  /// one. Run by one thread.
  WHORL_HOST_DEVICE void find_piece(const ProgramStep& s, std::uint32_t i,
                                    std::uint32_t from) const {
    const bool reads = (s.flags & kReadsSource) != 0;
    const bool reads_target = (s.flags & kReadsTarget) != 0;
    const bool writes = (s.flags & kWritesTarget) != 0;
    const std::uint32_t first = reads ? first_chunk(s.src, s.chunk, s.stride, i) : 0;
    const std::uint32_t first_sink = writes ? first_chunk(s.dst, s.dst_chunk, s.stride, i) : 0;
    Range source{}, sink{};
    const auto find = [&](std::uint32_t k) {
      if (reads) source = chunk(s.src, first + k);
      if (writes) sink = chunk(s.dst, first_sink + k);
      return (reads ? source : sink).elements;
    };
    Piece piece;
    piece.sources = s.fan_in + (reads ? 1 : 0) + (reads_target ? 1 : 0);
    piece.destinations = s.fan_out + (writes ? 1 : 0);
    piece.divisor = (s.flags & kAllPresent) != 0 ? launch_.divisor : 1;
    piece.offset = from == 0 ? 0 : memory_.piece.offset + memory_.piece.elements * moves_.element();
    piece.elements = find(from);
    const Range begin_source = source, begin_sink = sink;
    piece.behind = from + 1;
    WHORL_DO_NOT_UNROLL
    for (; piece.behind < s.count; ++piece.behind) {
      const std::uint64_t more = find(piece.behind);
      const std::uint64_t bytes = piece.elements * moves_.element();
      if (more == 0) continue;
      if ((reads && source.data != begin_source.data + bytes) ||
          (writes && sink.data != begin_sink.data + bytes)) {
        break;
      }
      piece.elements += more;
    }
    if (reads) memory_.sources[s.own_at] = begin_source.data - piece.offset;
    if (reads_target) memory_.sources[0] = begin_sink.data - piece.offset;
    if (writes) memory_.targets[0] = begin_sink.data - piece.offset;
    // Slots begin at multiples of 16 bytes, as offset 0 of the messages does.
    bool whole = true, vectors = true;
    const auto look_at = [&](bool used, const std::byte* data) {
      const auto zero = reinterpret_cast<std::uintptr_t>(data) - piece.offset;
      whole = whole && (!used || zero % moves_.element() == 0);
      vectors = vectors && (!used || zero % kVectorBytes == 0);
    };
    const bool local = s.fan_in + s.fan_out == 0; // then equal alignment is enough
    if (local && reads && writes &&
        static_cast<std::uint64_t>(begin_source.data - begin_sink.data) % kVectorBytes == 0) {
      whole = reinterpret_cast<std::uintptr_t>(begin_sink.data) % moves_.element() == 0;
    } else {
      look_at(reads, begin_source.data);
      look_at(writes, begin_sink.data);
    }
    piece.access = !whole     ? Segment::Access::kByte
                   : !vectors ? Segment::Access::kElement
                              : Segment::Access::kVector;
    memory_.piece = piece;
  }

  WHORL_HOST_DEVICE void move_piece(const ProgramStep& s) const {
    const gpu::Lane threads{block_.index(), block_.count()};
    if (memory_.piece.elements == 0) return;
    if ((s.flags & kCombines) != 0) {
      moves_.combine(memory_, threads);
    } else if (s.fan_in + s.fan_out > 0 || memory_.sources[0] != memory_.targets[0]) {
      moves_.copy(memory_, threads);
    }
  }

  const Launch& launch_;
  Block& block_;
  Moves moves_;
  BlockMemory& memory_;
  const Launch::Rank& rank_;
  const std::byte* base_; ///< start of the program
  const Program& program_;
  std::uint32_t block_number_; ///< number among the blocks of the launch
  std::uint32_t instance_, lane_index_;
  ProgramLane lane_;
  const std::uint8_t* peers_ = nullptr;
  std::uint32_t channel_ = 0;
  std::uint32_t step_ = 0;
  std::uint64_t window_ = 0;
  std::uint64_t number_ = 0; ///< number of the launch, where lanes wait for each other
};

} // namespace
} // namespace whorl::gpu
