#pragma once

// Interpreter of schedules: one block runs one lane of an instance of a rank's program. One source
// text for the device and for the host, where a block is one thread (tests, the simulated driver).
// Does what Execution (exec/execution.h) does on the host, with the same bits, but sends every
// message through a slot.
//
// A repetition of a step has three parts, between two barriers of the block:
//
//     some threads wait for the messages of the lane's peers, and for slots     │ barrier
//     all threads: operands ──load──▶ combined in registers ──▶ all targets     │ barrier
//     other threads publish to the peers the counts of messages sent and taken
//
// Threads that wait go on to the next repetition while others still publish: a fence takes as long
// as a message of some KiB. Each peer of the lane has one thread that waits for it and one that
// publishes to it, with counts of their own, so nothing else has to be ordered, unless a rank has
// two places among the lane's peers. Data is read and written with ordinary accesses: they
// are ordered by the flag's acquire, or release, of one thread and the barriers between that thread
// and the others. A slot that has been emptied is published by a relaxed store: what was read from
// it has arrived in registers before the barrier.
//
// Block provides threads, flags and clocks, as HostBlock in tests/support and DeviceBlock in
// interpret.cu do:
//   std::uint64_t index(), count()                 this thread among those of the block
//   void sync(); bool any(bool)                    barrier; and whether the value is true anywhere
//   std::uint64_t acquire(const std::uint64_t*)    reads a flag, for all devices and the host
//   std::uint64_t peek(const std::uint64_t*)       the same without an order of other memory
//   void release(std::uint64_t*, std::uint64_t)    writes a flag, for all devices and the host
//   void post(T*, T)                               the same without an order of other memory
//   void put(Line*, Line); Line get(const Line*)   writes, reads a line in one access (direct.h)
//   std::uint32_t look(const std::uint32_t*)       reads a word of the host
//   void publish(std::uint32_t*, std::uint32_t)    writes a word of the host, after earlier writes
//   std::uint32_t add(std::uint32_t*, std::uint32_t)
//                                                  adds atomically on this device; returns the old
//   std::uint64_t now_ns(); void pause()

#include "gpu/moves.h"
#include "gpu/piece_finder.h"
#include "gpu/program.h"
#include "gpu/waits.h"

namespace whorl::gpu {
namespace {

/// Reads a T of a program, in words.
template <class T>
WHORL_HOST_DEVICE T read_words(const std::byte* from) {
  struct [[gnu::may_alias]] Words {
    std::uint32_t word[sizeof(T) / 4];
  };
  static_assert(sizeof(Words) == sizeof(T));
  return __builtin_bit_cast(T, *reinterpret_cast<const Words*>(from));
}

/// Interpreter of one block. Moves is one of the types in moves.h, or has the same functions.
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
        program_(read_words<Program>(base_)),
        waits_(launch, rank_, y * launch.lanes * launch.instances + x, block),
        instance_(x / launch.lanes),
        lane_index_(x % launch.lanes) {}

  WHORL_HOST_DEVICE void run() {
    const bool stops = launch_.stops_first != 0 && is_last_thread() && waits_.is_to_stop();
    const bool idle = lane_index_ >= program_.lanes;
    if (!idle) begin();
    if (block_.any(stops) || idle) return;
    if (program_.lanes_wait != 0) number_ = head().launch + 1;
    if (!run_windows()) return;
    if (program_.peers_repeat != 0) block_.sync();
    for_peers<Role::kPublishes>(0, lane_.peers, [&](std::uint32_t p) {
      const Counts& counts = memory_.published[peer(p)];
      end(region(), false, peer(p)).count = counts.taken;
      end(region(), true, peer(p)).count = counts.sent;
    });
    if (program_.lanes_wait != 0) leave();
  }

 private:
  /// Part of a thread in the exchange with those peers that it handles.
  enum class Role { kWaits, kPublishes };

  WHORL_HOST_DEVICE ProgramStep step(std::uint32_t s) const {
    return read_words<ProgramStep>(base_ + program_.steps_at +
                                   (lane_.first_step + s) * sizeof(ProgramStep));
  }
  WHORL_HOST_DEVICE std::uint32_t peer(std::uint32_t p) const { return memory_.peers[p]; }
  WHORL_HOST_DEVICE std::byte* region() const { return launch_.regions[rank_.rank]; }
  WHORL_HOST_DEVICE RegionHead& head() const { return *reinterpret_cast<RegionHead*>(region()); }
  WHORL_HOST_DEVICE FifoEnd& end(std::byte* region, bool sends, std::uint32_t peer) const {
    return launch_.fifos.end(region, sends, peer, channel_);
  }
  WHORL_HOST_DEVICE std::uint64_t* progress(std::uint32_t lane) const {
    return &reinterpret_cast<LaneProgress*>(
                region() + launch_.fifos.progress_at())[instance_ * launch_.lanes + lane]
                .value;
  }
  WHORL_HOST_DEVICE bool is_last_thread() const { return block_.index() == block_.count() - 1; }

  /// Calls `f` for those of peers [first, last) for which this thread has the role.
  template <Role kRole, class F>
  WHORL_HOST_DEVICE void for_peers(std::uint32_t first, std::uint32_t last, F&& f) const {
    const auto index = static_cast<std::uint32_t>(block_.index());
    const auto count = static_cast<std::uint32_t>(block_.count());
    std::uint32_t p = kRole == Role::kWaits ? index : index + count / 2;
    if (p >= count) p -= count;
    WHORL_DO_NOT_UNROLL
    for (; p < last; p += count) {
      if (p >= first) f(p);
    }
  }

  /// Reads the lane and the counts of its peers. Comes before a barrier.
  WHORL_HOST_DEVICE void begin() {
    lane_ = read_words<ProgramLane>(base_ + program_.lanes_at + lane_index_ * sizeof(ProgramLane));
    channel_ = instance_ * launch_.lane_channels + lane_.channel;
    const auto* const peers =
        reinterpret_cast<const std::uint8_t*>(base_ + program_.peers_at) + lane_.first_peer;
    const auto counts_of = [&](std::uint32_t peer) {
      return Counts{.sent = end(region(), true, peer).count,
                    .taken = end(region(), false, peer).count};
    };
    for_peers<Role::kWaits>(0, lane_.peers, [&](std::uint32_t p) {
      const std::uint32_t peer = peers[p];
      memory_.peers[p] = static_cast<std::uint8_t>(peer);
      memory_.credits[peer] = block_.peek(&end(region(), true, peer).flag);
      memory_.awaited[peer] = counts_of(peer);
    });
    for_peers<Role::kPublishes>(0, lane_.peers, [&](std::uint32_t p) {
      const std::uint32_t peer = peers[p];
      memory_.published[peer] = counts_of(peer);
    });
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
          if (is_last_thread()) find_piece(s, i, from);
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

  WHORL_HOST_DEVICE Awaited at(WaitPhase phase, std::uint32_t peer) const {
    return {phase, peer, lane_index_, step_, window_};
  }
  /// Returns the same on all threads of the block. A barrier.
  WHORL_HOST_DEVICE bool block_is_to_stop() const {
    return block_.any(block_.index() == 0 && waits_.is_to_stop());
  }

  WHORL_HOST_DEVICE bool peers_arrive(const ProgramStep& s) {
    const FifoLayout& fifos = launch_.fifos;
    bool good = true;
    for_peers<Role::kWaits>(s.rx, s.rx + s.fan_in, [&](std::uint32_t p) {
      const std::uint32_t from = peer(p);
      const std::uint64_t number = memory_.awaited[from].taken++;
      const std::uint64_t* const flag = &end(region(), false, from).flag;
      good = good && waits_.wait([&] { return block_.acquire(flag) > number; }, kFlagLooks,
                                 at(WaitPhase::kReceiving, from));
      const std::uint32_t k = p - s.rx;
      memory_.sources[k < s.own_at ? k : k + 1] = region() + fifos.slot_at(from, channel_, number);
    });
    for_peers<Role::kWaits>(s.tx, s.tx + s.fan_out, [&](std::uint32_t p) {
      const std::uint32_t to = peer(p);
      const std::uint64_t number = memory_.awaited[to].sent++;
      memory_.targets[p - s.tx + ((s.flags & kWritesTarget) != 0 ? 1 : 0)] =
          launch_.regions[to] + fifos.slot_at(rank_.rank, channel_, number);
      const std::uint64_t* const flag = &end(region(), true, to).flag;
      std::uint64_t& credits = memory_.credits[to];
      if (number < credits + fifos.slots) return;
      good =
          good && waits_.wait([&] { return number < (credits = block_.peek(flag)) + fifos.slots; },
                              kFlagLooks, at(WaitPhase::kSending, to));
    });
    return good;
  }

  /// Waits for the lane that a step names; that lane's steps are counted as it counts them.
  WHORL_HOST_DEVICE bool lane_arrives(const ProgramStep& s) {
    if (block_.index() != 0) return true;
    const auto& other = reinterpret_cast<const ProgramLane*>(base_ + program_.lanes_at)[s.rx];
    const auto round = static_cast<std::uint32_t>(window_ / launch_.instances);
    const std::uint64_t wanted = number_ << 32 | (round * other.steps + s.chunk + 1);
    const std::uint64_t* const reached = progress(s.rx);
    return waits_.wait([&] { return block_.acquire(reached) >= wanted; }, kFlagLooks,
                       at(WaitPhase::kLane, rank_.rank));
  }

  WHORL_HOST_DEVICE void publish_counts(const ProgramStep& s) {
    for_peers<Role::kPublishes>(s.rx, s.rx + s.fan_in, [&](std::uint32_t p) {
      const std::uint32_t to = peer(p);
      block_.post(&end(launch_.regions[to], true, rank_.rank).flag, ++memory_.published[to].taken);
    });
    for_peers<Role::kPublishes>(s.tx, s.tx + s.fan_out, [&](std::uint32_t p) {
      const std::uint32_t to = peer(p);
      block_.release(&end(launch_.regions[to], false, rank_.rank).flag,
                     ++memory_.published[to].sent);
    });
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

  WHORL_HOST_DEVICE void find_piece(const ProgramStep& s, std::uint32_t i, std::uint32_t from) {
    // Made here only, so that the interpreter itself stays in registers.
    PieceFinder(launch_, rank_, base_, program_, instance_, window_, moves_.element(), memory_)
        .find(s, i, from);
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
  const Program program_;
  Waits<Block> waits_;
  std::uint32_t instance_, lane_index_;
  ProgramLane lane_{};
  std::uint32_t channel_ = 0;
  std::uint32_t step_ = 0;
  std::uint64_t window_ = 0;
  std::uint64_t number_ = 0; ///< number of the launch, where lanes wait for each other
};

} // namespace
} // namespace whorl::gpu
