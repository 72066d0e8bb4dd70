#pragma once

// Exchange of messages between pairs of ranks, which may differ in size, through the FIFOs of the
// interpreter (fifo_layout.h). A message is divided into chunks of a slot at most, of which chunk k
// goes through FIFO (k + turn) modulo `parts`: small messages to different ranks have different
// turns, and so take different blocks. Block x does what goes through FIFO x, one distance i after
// the other, so that few slots are in use at a time; blocks begin with different distances, so that
// all links are:
//
//     step (i, w):  chunk of window w for rank r + i ──▶ slot in the memory of r + i
//                   slot in r's memory ──▶ chunk that another rank has sent in its last step
//
// Both parts of a step are awaited together, then moved together. All ranks have the same order of
// steps, and wait for earlier steps only: for a chunk that was sent in the last step, and for a
// slot that is emptied in step (i, w − 1) at the latest, or by an earlier launch. So the rank that
// is furthest behind never waits.

#include "gpu/combine.h"
#include "gpu/exchange_messages.h"
#include "gpu/fifo_layout.h"
#include "gpu/pieces.h"
#include "gpu/waits.h"

namespace whorl::gpu {
namespace {

/// Memory that the threads of a block share.
struct ExchangeMemory {
  /// State of the messages in one direction between this rank and another one.
  struct Side {
    std::uint64_t number; ///< number of the first message through this block's FIFO
    std::uint64_t chunk;  ///< bytes of a chunk
  };
  /// Copy of a chunk to a slot, or from one.
  struct Move {
    const std::byte* from;
    std::byte* to;
    std::uint64_t bytes;
    std::uint64_t number; ///< number of the message in the FIFO
    std::uint32_t peer;   ///< the own rank if there is no message
  };
  Side sends[kMaxRanks], receives[kMaxRanks]; ///< sides by rank
  Move moves[2][2]; ///< moves of even and odd steps: out of this rank, and in
};

/// Operands of a copy, for Combine.
struct CopyOperands {
  const std::byte* from;
  std::byte* to;
  std::uint64_t elements;
  WHORL_HOST_DEVICE static int sources() { return 1; }
  WHORL_HOST_DEVICE static int destinations() { return 1; }
  WHORL_HOST_DEVICE const std::byte* source(int) const { return on_device(from); }
  WHORL_HOST_DEVICE std::byte* destination(int) const { return on_device(to); }
  WHORL_HOST_DEVICE std::uint64_t count() const { return elements; }
  WHORL_HOST_DEVICE static std::int32_t divisor() { return 1; }
  WHORL_HOST_DEVICE Segment::Access access() const {
    const auto apart =
        reinterpret_cast<std::uintptr_t>(from) - reinterpret_cast<std::uintptr_t>(to);
    return apart % kVectorBytes == 0 ? Segment::Access::kVector : Segment::Access::kElement;
  }
};

/// Part of an exchange that one block carries out. Block: see interpret.h.
template <class Block>
class Exchange {
 public:
  /// Makes the part of block `x` of rank `y` of the launch.
  WHORL_HOST_DEVICE Exchange(const Launch& launch, std::uint32_t x, std::uint32_t y,
                             ExchangeMemory& memory, Block& block)
      : launch_(launch),
        block_(block),
        memory_(memory),
        rank_(launch.ranks[y].rank),
        n_(launch.fifos.nranks),
        channel_(x),
        messages_(reinterpret_cast<const PairMessages*>(
            (launch.programs != nullptr ? launch.programs : launch.inline_programs) +
            launch.ranks[y].program)),
        waits_(launch, launch.ranks[y], y * launch.instances + x, block) {}

  WHORL_HOST_DEVICE void run() {
    const bool stops = launch_.stops_first != 0 && has(kAwaitsSlot) && waits_.is_to_stop();
    for_peers([&](std::uint32_t p) {
      memory_.sends[p] = {.number = end(rank_, true, p).count,
                          .chunk = chunk_of(messages_[p].sent)};
      memory_.receives[p] = {.number = end(rank_, false, p).count,
                             .chunk = chunk_of(messages_[p].taken)};
    });
    if (block_.any(stops) || !exchange()) return;
    for_peers([&](std::uint32_t p) { // for later launches
      const std::uint32_t ahead = p > rank_ ? p - rank_ : p + n_ - rank_;
      end(rank_, true, p).count = memory_.sends[p].number + chunks(Way::kSend, ahead);
      end(rank_, false, p).count = memory_.receives[p].number + chunks(Way::kReceive, n_ - ahead);
    });
  }

 private:
  using Move = ExchangeMemory::Move;
  /// Direction of a message.
  enum class Way { kSend, kReceive };
  /// Tasks of single threads, each in another warp if there are so many.
  enum Task : std::uint64_t { kAwaitsSlot, kAwaitsMessage, kFreesSlot, kPublishes };
  /// Step of the block: a window of the messages over some distance; none if that is 0.
  struct Step {
    std::uint32_t distance = 0;
    std::uint64_t window = 0;
  };
  /// Number of steps between two looks at the host's word, in a block that never waits for long.
  static constexpr std::uint32_t kSteps = 256;

  WHORL_HOST_DEVICE bool has(Task task) const {
    return block_.index() == std::uint64_t{task} * 32 % block_.count();
  }
  WHORL_HOST_DEVICE std::uint64_t chunk_of(std::uint64_t bytes) const {
    return exchange_chunk(bytes, launch_.parts, launch_.fifos.slot_bytes);
  }
  WHORL_HOST_DEVICE FifoEnd& end(std::uint32_t region, bool sends, std::uint32_t peer) const {
    return launch_.fifos.end(launch_.regions[region], sends, peer, channel_);
  }
  /// Calls `f` for those other ranks that this thread handles.
  template <class F>
  WHORL_HOST_DEVICE void for_peers(F&& f) const {
    WHORL_DO_NOT_UNROLL
    for (std::uint64_t p = block_.index(); p < n_; p += block_.count()) {
      if (p != rank_) f(static_cast<std::uint32_t>(p));
    }
  }

  WHORL_HOST_DEVICE std::uint32_t peer_at(Way way, std::uint32_t distance) const {
    const std::uint32_t peer = way == Way::kSend ? rank_ + distance : rank_ + n_ - distance;
    return peer < n_ ? peer : peer - n_;
  }
  WHORL_HOST_DEVICE const ExchangeMemory::Side& side(Way way, std::uint32_t peer) const {
    return way == Way::kSend ? memory_.sends[peer] : memory_.receives[peer];
  }
  WHORL_HOST_DEVICE std::uint64_t bytes_of(Way way, std::uint32_t peer) const {
    return way == Way::kSend ? messages_[peer].sent : messages_[peer].taken;
  }
  /// Returns the first chunk through this block's FIFO of a message over that distance.
  WHORL_HOST_DEVICE std::uint32_t first_chunk(std::uint32_t distance) const {
    const std::uint32_t turn = exchange_turn(distance, n_, launch_.parts);
    return channel_ >= turn ? channel_ - turn : channel_ + launch_.parts - turn;
  }
  /// Returns how many chunks of the message over that distance go through this block's FIFO.
  WHORL_HOST_DEVICE std::uint64_t chunks(Way way, std::uint32_t distance) const {
    const std::uint32_t peer = peer_at(way, distance);
    const std::uint64_t chunk = side(way, peer).chunk;
    const std::uint64_t all = (bytes_of(way, peer) + chunk - 1) / chunk;
    const std::uint64_t first = first_chunk(distance);
    return all > first ? (all - first - 1) / launch_.parts + 1 : 0;
  }

  /// Carries out all steps. Returns false if all are to stop.
  WHORL_HOST_DEVICE bool exchange() {
    const std::uint32_t distances = n_ - 1;
    Step last;
    WHORL_DO_NOT_UNROLL
    for (std::uint32_t j = 0; j < distances; ++j) {
      const std::uint32_t i = 1 + (j + channel_ * distances / launch_.parts) % distances;
      const std::uint64_t sends = chunks(Way::kSend, i), receives = chunks(Way::kReceive, i);
      WHORL_DO_NOT_UNROLL
      for (std::uint64_t w = 0; w < sends || w < receives; ++w) {
        if (!do_step({i, w}, last)) return false;
        last = {i, w};
      }
    }
    return do_step({}, last);
  }

  /// Sends what `out` has for another rank, or copies what the rank sends to itself if that is no
  /// step, and receives what another rank has sent in step `in`.
  WHORL_HOST_DEVICE bool do_step(const Step& out, const Step& in) {
    auto& moves = memory_.moves[steps_ % 2]; // threads may still publish what the last step moved
    bool good = true;
    if (has(kAwaitsSlot)) {
      moves[0] = out.distance > 0 ? move(Way::kSend, out) : own_move();
      good = (steps_ + 1) % kSteps != 0 || !waits_.is_to_stop();
      good = good && slot_arrives(moves[0], out);
    }
    if (has(kAwaitsMessage)) {
      moves[1] = in.distance > 0 ? move(Way::kReceive, in) : Move{};
      good = good && message_arrives(moves[1], in);
    }
    if (block_.any(!good)) return false;
    WHORL_DO_NOT_UNROLL
    for (const Move& one : moves) copy(one);
    block_.sync();
    if (has(kFreesSlot) && is_message(moves[1])) {
      block_.post(&end(moves[1].peer, true, rank_).flag, moves[1].number + 1);
    }
    if (has(kPublishes) && is_message(moves[0])) {
      block_.release(&end(moves[0].peer, false, rank_).flag, moves[0].number + 1);
    }
    ++steps_;
    return true;
  }

  WHORL_HOST_DEVICE bool is_message(const Move& move) const {
    return move.bytes > 0 && move.peer != rank_;
  }
  /// Returns what a step moves; no bytes if it has no chunk in that direction.
  WHORL_HOST_DEVICE Move move(Way way, const Step& step) const {
    const std::uint32_t peer = peer_at(way, step.distance);
    const auto& [first, chunk] = side(way, peer);
    const std::uint64_t all = bytes_of(way, peer), number = first + step.window;
    const std::uint64_t offset = (step.window * launch_.parts + first_chunk(step.distance)) * chunk;
    if (offset >= all) return {};
    const std::uint64_t bytes = all - offset < chunk ? all - offset : chunk;
    const bool sends = way == Way::kSend;
    std::byte* const slot = launch_.regions[sends ? peer : rank_] +
                            launch_.fifos.slot_at(sends ? rank_ : peer, channel_, number);
    if (sends) return {messages_[peer].source + offset, slot, bytes, number, peer};
    return {slot, messages_[peer].target + offset, bytes, number, peer};
  }
  /// Returns this block's share of what the rank sends to itself.
  WHORL_HOST_DEVICE Move own_move() const {
    const PairMessages& own = messages_[rank_];
    const std::uint64_t share =
        ((own.sent + launch_.instances - 1) / launch_.instances + 127) / 128 * 128;
    const std::uint64_t offset = channel_ * share;
    if (own.source == own.target || offset >= own.sent) return {};
    const std::uint64_t rest = own.sent - offset;
    return {own.source + offset, own.target + offset, rest < share ? rest : share, 0, rank_};
  }

  WHORL_HOST_DEVICE bool slot_arrives(const Move& move, const Step& step) const {
    if (!is_message(move)) return true;
    const std::uint64_t* const flag = &end(rank_, true, move.peer).flag;
    return waits_.wait([&] { return move.number < block_.peek(flag) + launch_.fifos.slots; },
                       kFlagLooks, at(WaitPhase::kSending, move, step));
  }
  WHORL_HOST_DEVICE bool message_arrives(const Move& move, const Step& step) const {
    if (!is_message(move)) return true;
    const std::uint64_t* const flag = &end(rank_, false, move.peer).flag;
    return waits_.wait([&] { return block_.acquire(flag) > move.number; }, kFlagLooks,
                       at(WaitPhase::kReceiving, move, step));
  }
  WHORL_HOST_DEVICE static Awaited at(WaitPhase phase, const Move& move, const Step& step) {
    return {phase, move.peer, 0, step.distance, step.window};
  }

  WHORL_HOST_DEVICE void copy(const Move& move) const {
    if (move.bytes == 0) return;
    const gpu::Lane threads{block_.index(), block_.count()};
    const auto is_whole = [](std::uint64_t value) { return value % sizeof(std::uint64_t) == 0; };
    if (is_whole(move.bytes) && is_whole(reinterpret_cast<std::uintptr_t>(move.from)) &&
        is_whole(reinterpret_cast<std::uintptr_t>(move.to))) {
      copy_elements<std::uint64_t>(move, threads);
    } else {
      copy_elements<std::uint8_t>(move, threads);
    }
  }
  /// Copies elements of type T: a thread has more bytes of large ones under way.
  template <class T>
  WHORL_HOST_DEVICE static void copy_elements(const Move& move, gpu::Lane threads) {
    const CopyOperands operands{move.from, move.to, move.bytes / sizeof(T)};
    Combine<Plain<T>, kernels::Max, false, true, CopyOperands>(operands).run(threads);
  }

  const Launch& launch_;
  Block& block_;
  ExchangeMemory& memory_;
  const std::uint32_t rank_, n_;
  const std::uint32_t channel_; ///< FIFO of each pair, and number of the block
  const PairMessages* const messages_;
  const Waits<Block> waits_;
  std::uint32_t steps_ = 0; ///< number of steps done
};

} // namespace
} // namespace whorl::gpu
