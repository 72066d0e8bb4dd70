// Bruck's all-to-all: ⌈log2 p⌉ messages of half of the blocks instead of p−1 messages of one block
// (J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient Algorithms for All-to-All
// Communications in Multiport Message-Passing Systems", 1997). For small blocks on many ranks.
//
//     alltoall   L = ⌈log2 p⌉ rounds, about L/2·n bytes sent, (L/2 + 1)·n copied; any p
//
// The offset of a block is the distance o from the rank that has it to the rank that needs it. In
// round k a rank sends all blocks with bit k in their offset, S(k), 2^k ranks on; so a block has
// arrived after the round of the highest bit of its offset.
//
//     p = 6     round 0: offsets 1 3 5 ──▶ rank r+1      1 has arrived
//               round 1: offsets 2 3   ──▶ rank r+2      2 and 3 have
//               round 2: offsets 4 5   ──▶ rank r+4      4 and 5 have
//
// A block that is received in round k stays where it is in scratch, in an area R(k) of its own.
// Before round k the blocks of S(k) are packed into one message: those whose only bit so far is k
// from the input, the others from R(j), where j is the next lower bit of the offset. Both areas
// hold their offsets in descending order: then the blocks with the same j lie in runs of 2^j, at
// equal distances of 2^k on both sides, and the blocks of R(k) that have arrived come from
// consecutive ranks and lie in the output side by side.
#include "algorithms/bruck.h"

#include <algorithm>
#include <array>

#include "algorithms/common.h"

namespace whorl {
namespace {

/// Set of the offsets below p with one given bit.
class OffsetSet {
 public:
  OffsetSet(int nranks, int bit) : bit_(bit), size_(index(nranks)) {}
  int size() const { return size_; }
  /// Returns the first place in an area of `count` contiguous offsets of the set, from `offset` on;
  /// the last of them comes first.
  int place(int offset, int count) const { return size_ - index(offset) - count; }

 private:
  /// Counts the offsets of the set below `offset`.
  int index(int offset) const {
    const int weight = 1 << bit_;
    return offset / (2 * weight) * weight + std::max(0, offset % (2 * weight) - weight);
  }
  int bit_, size_;
};

int rounds_of(int nranks) { return ceil_log2(nranks); }

/// Counts the blocks that a rank sends.
int blocks_sent(int nranks) {
  int blocks = 0;
  for (int k = 0; k < rounds_of(nranks); ++k) blocks += OffsetSet(nranks, k).size();
  return blocks;
}

/// Builder of the lane of one rank.
class Writer {
 public:
  Writer(ScheduleBuilder& builder, int nranks, int rank)
      : lane_(builder.lane(0)), n_(nranks), rank_(rank) {
    const auto add = [&](int chunks) {
      const std::vector<std::uint16_t> holds(static_cast<std::size_t>(chunks), 0);
      return builder.scratch(holds);
    };
    message_ = add(n_ / 2);
    for (int k = 0; k < rounds_of(n_); ++k) {
      sets_.emplace_back(n_, k);
      received_.push_back(add(set(k).size()));
    }
  }

  void write() {
    for (int k = 0; k < rounds_of(n_); ++k) {
      pack(k);
      const int distance = 1 << k;
      lane_.peers(wrap(rank_ + distance, n_), wrap(rank_ - distance, n_))
          .read(Buffer::kScratch)
          .send(message_)
          .count(set(k).size());
      // Copies while the messages of this round are on their way.
      k == 0 ? copy_own() : unpack(k - 1);
      lane_.write(Buffer::kScratch).recv_copy(area(k)).count(set(k).size());
    }
    unpack(rounds_of(n_) - 1);
  }

 private:
  const OffsetSet& set(int k) const { return sets_[static_cast<std::size_t>(k)]; }
  int area(int k) const { return received_[static_cast<std::size_t>(k)]; }

  /// Packs the message of round k.
  void pack(int k) {
    const int bit = 1 << k;
    lane_.read(Buffer::kInput).write(Buffer::kScratch);
    for (int offset = bit; offset < n_; offset += 2 * bit) {
      lane_.copy(rank_ + offset, message_ + set(k).place(offset, 1));
    }
    lane_.read(Buffer::kScratch);
    for (int j = 0; j < k; ++j) {
      const int run = 1 << j, first = bit + run, distance = 2 * bit;
      const int whole = first + run > n_ ? 0 : (n_ - first - run) / distance + 1;
      if (whole > 0) copy_run(k, j, first, run).repeat(whole, -bit);
      const int rest = first + whole * distance; // the run that is cut short by p
      if (rest < n_) copy_run(k, j, rest, n_ - rest);
    }
  }
  LaneBuilder& copy_run(int k, int j, int offset, int count) {
    return lane_.copy(area(j) + set(j).place(offset, count), message_ + set(k).place(offset, count))
        .count(count);
  }
  /// Copies the blocks that have arrived in round k to the output.
  void unpack(int k) {
    const int first = 1 << k, count = std::min(first, n_ - first);
    lane_.read(Buffer::kScratch)
        .write(Buffer::kOutput)
        .copy(area(k) + set(k).place(first, count), rank_ - (first + count - 1))
        .count(count);
  }
  void copy_own() { lane_.read(Buffer::kInput).write(Buffer::kOutput).copy(rank_, rank_); }

  LaneBuilder& lane_;
  int n_, rank_;
  int message_ = 0;           ///< first scratch chunk of the message to be sent
  std::vector<int> received_; ///< first scratch chunk of each R(k)
  std::vector<OffsetSet> sets_;
};

/// Builds one lane: blocks of one message are contiguous, so no chunks of other lanes can be
/// between them.
Schedule build(const Shape& shape, int rank) {
  const int n = shape.nranks;
  ScheduleBuilder builder(n, rank, 1);
  builder.blocks(n, n).message_chunks(n / 2);
  Writer(builder, n, rank).write();
  return std::move(builder).build();
}

bool supports(const Shape& shape) {
  return shape.nranks <= kMaxChunks && shape.nranks / 2 + blocks_sent(shape.nranks) <= kMaxChunks;
}

Cost cost(const Shape& shape) {
  const double n = shape.nranks;
  const double rounds = rounds_of(shape.nranks);
  const double volume = blocks_sent(shape.nranks) / n;
  return {.rounds = rounds,
          .volume = volume,
          .sent = volume,
          .received = volume,
          .mean = volume,
          .fifos = rounds,
          .copied = volume + 1,
          .messages = rounds,
          .window = n / (shape.nranks / 2)};
}

constexpr std::array kAlgorithms{
    Algorithm{"bruck", Collective::kAllToAll, supports, build, cost},
};

} // namespace

std::span<const Algorithm> bruck_algorithms() { return kAlgorithms; }

} // namespace whorl
