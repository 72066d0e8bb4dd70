#pragma once

#include <cstdint>
#include <vector>

namespace whorl {

/// Parts of a step's action, as a set of bits.
enum Op : std::uint8_t { kRecv = 1, kReduce = 2, kCopy = 4, kSend = 8, kWait = 16, kFinal = 32 };

/// Buffer that a chunk lies in. In place, chunks of kInput and kOutput may be the same memory.
enum class Buffer : std::uint8_t { kInput, kOutput, kScratch };

/// One action, done `repeat` times while both chunk indices move by `stride` modulo the chunk count
/// of their buffer. With repetition a ring has five steps whatever the rank count.
///
/// The legal sets of ops, where m is the received message, s is `count` chunks of `src` from
/// `chunk` on, d the same of `dst` from `dst_chunk` on:
///   kSend                              s goes to tx
///   kCopy                              d = s; nothing where in place they are the same memory
///   kReduce                            d = d ⊕ s
///   kRecv|kCopy                        d = m
///   kRecv|kCopy|kSend                  d = m, and m goes to tx
///   kRecv|kReduce|kSend                s ⊕ m goes to tx
///   kRecv|kReduce|kCopy                d = s ⊕ m
///   kRecv|kReduce|kCopy|kSend          d = s ⊕ m, and that goes to tx
///   kWait                              wait until lane `tx` has done step `rx` in this window
/// kFinal on a reducing step says that its result has the contributions of all ranks, so that the
/// operator's last part (the division of an average) is done there. The verifier checks it.
struct Step {
  std::uint8_t ops = 0;
  Buffer src = Buffer::kInput;  ///< operand of kReduce, source of kSend and kCopy
  Buffer dst = Buffer::kOutput; ///< target of kCopy
  /// Number of consecutive peers at once. A reducing step receives one message from each of rx …
  /// rx+fan−1 and combines them and its own operand in ascending order of rank, in one pass. A step
  /// that sends finished data (kSend alone, or with kCopy) sends it to each of tx … tx+fan−1;
  /// kRecv|kReduce|kSend sends its one partial result to tx only.
  std::uint8_t fan = 1;
  std::uint8_t tx = 0; ///< index into Lane::peers; for kWait: the lane
  std::uint8_t rx = 0; ///< index into Lane::peers; for kWait: the step
  std::uint16_t chunk = 0;
  std::uint16_t dst_chunk = 0;
  std::int16_t stride = 0;
  std::uint16_t count = 1; ///< contiguous chunks moved as one message; never wraps
  std::uint16_t repeat = 1;

  bool receives() const noexcept { return (ops & kRecv) != 0; }
  bool reduces() const noexcept { return (ops & kReduce) != 0; }
  bool copies() const noexcept { return (ops & kCopy) != 0; }
  bool sends() const noexcept { return (ops & kSend) != 0; }
  bool waits() const noexcept { return (ops & kWait) != 0; }
  bool final() const noexcept { return (ops & kFinal) != 0; }
  /// Returns the number of peers received from and sent to at once.
  int fan_in() const noexcept { return receives() ? (reduces() ? fan : 1) : 0; }
  int fan_out() const noexcept {
    if (!sends()) return 0;
    return receives() && reduces() && !copies() ? 1 : fan;
  }
  /// Returns whether the step reads `src` / writes `dst`.
  bool reads_src() const noexcept { return !waits() && (reduces() || !receives()); }
  bool writes_dst() const noexcept { return copies() || (reduces() && !receives()); }

  friend bool operator==(const Step&, const Step&) = default;
};
static_assert(sizeof(Step) == 16);

/// Lane whose steps are done in order, one after the other, with all their repetitions. Lanes of a
/// rank run at the same time: a CUDA block each, or a slot of the CPU progress loop.
struct Lane {
  /// Channel of the endpoints. Lanes of a rank may share one where they have no partner in common.
  std::uint16_t channel = 0;
  std::vector<std::uint32_t> peers; ///< ranks; with fan, in ascending order
  std::vector<Step> steps;

  friend bool operator==(const Lane&, const Lane&) = default;
};

/// Part of one rank in one window of a collective. Symbolic: no pointer, byte count, datatype or
/// operator. A *window* is as much of the vector as all chunks together can hold; the executor runs
/// the schedule once for each.
///
/// A buffer consists of blocks (one for a plain vector, nranks where every rank has a block) of
/// `chunks_per_block` chunks each. Chunks with the same index within their block have the same
/// size, so the message sizes of two ranks agree without being sent.
struct Schedule {
  int rank = 0;
  int nranks = 1;
  std::uint16_t chunks_per_block = 1; ///< number of chunks, alike on all ranks
  std::uint16_t input_chunks = 0;     ///< number of chunks; 0 where the rank's input is not used
  std::uint16_t output_chunks = 0;
  /// Index within a block of the chunk that each scratch chunk holds, which gives its size.
  std::vector<std::uint16_t> scratch;
  /// Largest Step::count of any rank: with it all ranks choose the same window. Alike on all ranks.
  std::uint16_t message_chunks = 1;
  /// Slots that every FIFO needs so that the schedule cannot deadlock; computed by verify().
  std::uint8_t min_slots = 1;
  std::vector<Lane> lanes;

  std::uint16_t chunks(Buffer buffer) const noexcept {
    switch (buffer) {
      case Buffer::kInput:
        return input_chunks;
      case Buffer::kOutput:
        return output_chunks;
      case Buffer::kScratch:
        break;
    }
    return static_cast<std::uint16_t>(scratch.size());
  }
  /// Returns the bytes of memory behind this object.
  std::size_t memory_bytes() const noexcept {
    std::size_t bytes = scratch.capacity() * sizeof scratch[0] + lanes.capacity() * sizeof(Lane);
    for (const Lane& lane : lanes) {
      bytes += lane.peers.capacity() * sizeof lane.peers[0] + lane.steps.capacity() * sizeof(Step);
    }
    return bytes;
  }
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// Returns the chunk index of repetition `i` of a step, for a buffer of `chunks` chunks.
constexpr std::uint16_t chunk_at(std::uint16_t first, std::int16_t stride, int i,
                                 int chunks) noexcept {
  const int index = (first + stride * i) % chunks;
  return static_cast<std::uint16_t>(index < 0 ? index + chunks : index);
}

} // namespace whorl
