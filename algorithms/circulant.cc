// Circulant, near-ordered: reduce-scatter and all-gather in ⌈log2 p⌉ rounds for any p (J. Bruck,
// C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient Algorithms for All-to-All Communications
// in Multiport Message-Passing Systems", 1997, for the all-gather; J. L. Träff, "Optimal,
// Non-pipelined Reduce-scatter and Allreduce Algorithms", 2024, for the reversal), in an order in
// which half of all bytes go to the nearest rank (as in the PAT algorithm of S. Jeaugey, 2025).
//
//     allreduce       2⌈log2 p⌉ rounds, 2(p−1)/p·n bytes sent, (p−1)/p·n reduced, 2n copied
//     reduce-scatter   ⌈log2 p⌉ rounds,  (p−1)/p·n bytes sent, (p−1)/p·n reduced,  n copied
//     all-gather       ⌈log2 p⌉ rounds,  (p−1)/p·n bytes sent,                     n copied
//
// Rank r calls the block of rank (r+o) mod p its offset o. In the round of k = 1, 2, 4 … < p the
// reduce-scatter sends the partial sums of all offsets whose lowest set bit is k, S(k), k ranks on,
// where offset o is offset o−k. The last sum left is that of offset 0. The all-gather is the same
// backwards.
//
//     p = 6     k = 1: offsets 1 3 5 ──▶ 0 2 4 of rank r+1
//               k = 2: offset  2     ──▶ 0     of rank r+2
//               k = 4: offset  4     ──▶ 0     of rank r+4
//
// Blocks are packed in scratch in an order of offsets in which each round is one message: S(k) must
// be contiguous, and so must be its target, S(k)−k, in the same order. The target is all multiples
// of 2k below p but the largest, z, if z+k ≥ p. Let order(m) be that of the multiples of m; it
// begins with the largest of them. If that is in S(m), no multiple of 2m is left out:
//
//     order(m) = (order(2m) + m), order(2m)
//
// and (largest of 2m) + m is the largest of m. Otherwise the largest is in order(2m), its first,
// and order(m) = order(2m), (order(2m) without its first + m).
#include "algorithms/circulant.h"

#include <algorithm>
#include <array>

#include "algorithms/common.h"

namespace whorl {
namespace {

/// One round: `count` scratch places from `sent` on are combined with those from `target` on,
/// `distance` ranks away.
struct Round {
  int distance, sent, target, count;
};

struct Layout {
  explicit Layout(int nranks) {
    std::vector<int> order{0};
    for (int m = 1 << (ceil_log2(nranks) - 1); m > 0; m /= 2) {
      std::vector<int> set; // S(m)
      for (const int offset : order) {
        if (offset + m < nranks) set.push_back(offset + m);
      }
      const bool has_largest = (nranks - 1) / m % 2 == 1;
      rounds.push_back({m, set.front(), set.front() - m, static_cast<int>(set.size())});
      order.insert(has_largest ? order.begin() : order.end(), set.begin(), set.end());
    }
    place.resize(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      place[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
    }
    for (Round& round : rounds) {
      round.sent = place[static_cast<std::size_t>(round.sent)];
      round.target = place[static_cast<std::size_t>(round.target)];
    }
    std::reverse(rounds.begin(), rounds.end());
    offset_at = std::move(order);
  }
  int own() const { return place[0]; }

  std::vector<Round> rounds;  ///< rounds, nearest first, as the reduce-scatter does them
  std::vector<int> place;     ///< place in scratch of each offset
  std::vector<int> offset_at; ///< offset of each place
};

/// Builder of one lane, whose chunk of block b is `chunk(b)` of input or output.
template <class Chunk>
class Writer {
 public:
  Writer(LaneBuilder& lane, const Layout& layout, int nranks, int rank, int scratch, Chunk chunk)
      : lane_(lane), layout_(layout), n_(nranks), rank_(rank), scratch_(scratch), chunk_(chunk) {}

  void pack() {
    lane_.read(Buffer::kInput).write(Buffer::kScratch);
    for (int i = 0; i < n_; ++i) lane_.copy(block_at(i), scratch_ + i);
  }
  /// Adds the reduce-scatter. The last round leaves the result in output chunk `output`, or if that
  /// is negative in this rank's own place in scratch.
  void reduce_scatter(int output) {
    for (const Round& round : layout_.rounds) {
      const int target = scratch_ + round.target;
      lane_.peers(wrap(rank_ + round.distance, n_), wrap(rank_ - round.distance, n_))
          .read(Buffer::kScratch)
          .write(Buffer::kScratch)
          .send(scratch_ + round.sent)
          .count(round.count);
      if (&round != &layout_.rounds.back()) {
        lane_.recv_reduce_copy(target, target).count(round.count);
      } else if (output >= 0) {
        lane_.write(Buffer::kOutput).recv_reduce_copy(target, output).final();
      } else {
        lane_.recv_reduce_copy(target, target).final();
      }
    }
  }
  /// Adds the all-gather, which begins with this rank's own place in scratch filled. Blocks
  /// received in a round are copied to the output while the next round's messages are on their way.
  void all_gather() {
    int from = layout_.own(), count = 1; // places not in the output yet
    for (auto round = layout_.rounds.rbegin(); round != layout_.rounds.rend(); ++round) {
      lane_.peers(wrap(rank_ - round->distance, n_), wrap(rank_ + round->distance, n_))
          .read(Buffer::kScratch)
          .send(scratch_ + round->target)
          .count(round->count);
      unpack(from, count);
      lane_.write(Buffer::kScratch).recv_copy(scratch_ + round->sent).count(round->count);
      from = round->sent;
      count = round->count;
    }
    unpack(from, count);
  }

 private:
  int block_at(int place) const {
    return chunk_(wrap(rank_ + layout_.offset_at[static_cast<std::size_t>(place)], n_));
  }
  void unpack(int from, int count) {
    lane_.read(Buffer::kScratch).write(Buffer::kOutput);
    for (int i = from; i < from + count; ++i) lane_.copy(scratch_ + i, block_at(i));
  }

  LaneBuilder& lane_;
  const Layout& layout_;
  int n_, rank_, scratch_;
  Chunk chunk_;
};

Schedule build_allreduce(const Shape& shape, int rank) {
  const int n = shape.nranks;
  const Layout layout(n);
  ScheduleBuilder builder(n, rank, n * shape.channels);
  builder.message_chunks(n / 2);
  for (int c = 0; c < shape.channels; ++c) {
    const auto chunk = [&](int block) { return block * shape.channels + c; };
    std::vector<std::uint16_t> holds;
    for (const int offset : layout.offset_at) {
      holds.push_back(static_cast<std::uint16_t>(chunk(wrap(rank + offset, n))));
    }
    Writer writer(builder.lane(c), layout, n, rank, builder.scratch(holds), chunk);
    writer.pack();
    writer.reduce_scatter(-1);
    writer.all_gather();
  }
  return std::move(builder).build();
}

Schedule build_reduce_scatter(const Shape& shape, int rank) {
  const int n = shape.nranks;
  const Layout layout(n);
  ScheduleBuilder builder(n, rank, shape.channels);
  builder.blocks(n, 1).message_chunks(n / 2);
  for (int c = 0; c < shape.channels; ++c) {
    const std::vector<std::uint16_t> holds(static_cast<std::size_t>(n),
                                           static_cast<std::uint16_t>(c));
    Writer writer(builder.lane(c), layout, n, rank, builder.scratch(holds),
                  [&](int block) { return block * shape.channels + c; });
    writer.pack();
    writer.reduce_scatter(c);
  }
  return std::move(builder).build();
}

Schedule build_all_gather(const Shape& shape, int rank) {
  const int n = shape.nranks;
  const Layout layout(n);
  ScheduleBuilder builder(n, rank, shape.channels);
  builder.blocks(1, n).message_chunks(n / 2);
  for (int c = 0; c < shape.channels; ++c) {
    const std::vector<std::uint16_t> holds(static_cast<std::size_t>(n),
                                           static_cast<std::uint16_t>(c));
    LaneBuilder& lane = builder.lane(c);
    const int scratch = builder.scratch(holds);
    lane.write(Buffer::kScratch).copy(c, scratch + layout.own());
    Writer writer(lane, layout, n, rank, scratch,
                  [&](int block) { return block * shape.channels + c; });
    writer.all_gather();
  }
  return std::move(builder).build();
}

bool supports(const Shape& shape) { return chunks_fit(shape); }

/// Returns the costs of a reduce-scatter or an all-gather; with `halves` 2 of an allreduce.
Cost circulant_cost(const Shape& shape, double halves, double reduced) {
  const double n = shape.nranks;
  const double rounds = halves * ceil_log2(shape.nranks);
  return {.rounds = rounds,
          .volume = halves * (n - 1) / n,
          .sent = halves * (n - 1) / n,
          .received = halves * (n - 1) / n,
          .mean = halves * (n - 1) / n,
          .fifos = rounds,
          .reduced = reduced * (n - 1) / n,
          .copied = halves,
          .messages = rounds * shape.channels,
          .window = n * shape.channels / (shape.nranks / 2)};
}
Cost allreduce_cost(const Shape& shape) { return circulant_cost(shape, 2, 1); }
Cost reduce_scatter_cost(const Shape& shape) { return circulant_cost(shape, 1, 1); }
Cost all_gather_cost(const Shape& shape) { return circulant_cost(shape, 1, 0); }

constexpr std::array kAlgorithms{
    Algorithm{"circulant", Collective::kAllReduce, supports, build_allreduce, allreduce_cost},
    Algorithm{"circulant", Collective::kReduceScatter, supports, build_reduce_scatter,
              reduce_scatter_cost},
    Algorithm{"circulant", Collective::kAllGather, supports, build_all_gather, all_gather_cost},
};

} // namespace

std::span<const Algorithm> circulant_algorithms() { return kAlgorithms; }

} // namespace whorl
