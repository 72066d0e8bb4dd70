// Reduce-scatter and all-gather between groups of unequal sizes (hosts with 5 and 3 ranks), and
// allreduce as the first and then the second. Every member of a group does an equal share of the
// group's work for each other group, so that no rank stands for another one:
//
//     reduce-scatter   For the blocks of every group: each member reduces a share of them, from
//                      all members of its own group in one pass, and sends it to the ranks whose
//                      blocks these are. A rank adds what it gets from the other groups.
//     all-gather       backwards: a rank sends its block to those members of each other group that
//                      have the block in their shares, and these hand it to their group
//
//     5 + 3 ranks      group B reduces its part of blocks 0–4:    0   1   2   3   4
//                      shares of ranks 5, 6, 7:                  └─5──┴──6──┴──7──┘
//                      rank 5 sends to 0 and 1, 6 to 1, 2 and 3, 7 to 3 and 4
//
// With N ranks, of which s are in the largest of m groups, in fractions of the vector:
//
//     each half    (N−1)/N sent or received; at most 1 − 1/s + (m−1)/N the other way
//     of that, a group of g ranks sends 1 − g/N to other groups and receives (m−1)·g/N from them,
//     or the reverse: with two groups every byte of an allreduce crosses once in each direction
//
// Blocks are cut into so many chunks that shares are equal. A share is cut where a block ends, so
// that a message belongs to one block. Members go through the pieces of their shares in rounds, so
// that no FIFO has to hold more than two messages.
#include "algorithms/uneven.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "algorithms/common.h"
#include "algorithms/groups.h"

namespace whorl {
namespace {

/// Part of a share within one block.
struct Piece {
  int block;  ///< block, counted within its group
  int offset; ///< first chunk in the block
  int count;  ///< number of chunks
};

/// Returns the chunks, as first and end, of the share that member `i` of `members` has of `blocks`
/// blocks of `chunks` chunks.
std::pair<int, int> share_of(int i, int members, int blocks, int chunks) {
  const auto begin = [&](int member) { return (member * blocks * chunks + members - 1) / members; };
  return {begin(i), begin(i + 1)};
}

std::vector<Piece> pieces_of(int i, int members, int blocks, int chunks) {
  std::vector<Piece> pieces;
  const auto [begin, end] = share_of(i, members, blocks, chunks);
  for (int at = begin; at < end; at += pieces.back().count) {
    const int block = at / chunks;
    pieces.push_back({block, at % chunks, std::min(end, (block + 1) * chunks) - at});
  }
  return pieces;
}

/// Returns the number of chunks of a block with which all shares are equal, or a large one.
int chunks_of_block(const Groups& groups, int channels) {
  constexpr int kEnough = 64; // shares then differ by a 64th of a block
  int chunks = 1;
  const auto sizes = groups.sizes();
  for (const auto& [members, count] : sizes) {
    for (const auto& [blocks, others] : sizes) {
      if (chunks < kEnough) chunks = std::lcm(chunks, members / std::gcd(members, blocks));
    }
  }
  return std::min({chunks, kEnough, kMaxChunks / (groups.places() * channels)});
}

/// Builder of the lanes of one place.
class Writer {
 public:
  Writer(const Shape& shape, int place, Collective collective)
      : groups_(shape),
        channels_(shape.channels),
        q_(chunks_of_block(groups_, channels_)),
        whole_(collective == Collective::kAllReduce),
        me_(place),
        group_(groups_.of(place)),
        i_(place - groups_.first(group_)),
        size_(groups_.size(group_)) {
    for (const int member : groups_.members(group_)) {
      if (member != me_) others_.push_back(member);
    }
  }

  Schedule build(Collective collective) {
    const int n = groups_.places(), block = q_ * channels_;
    ScheduleBuilder builder(n, me_, whole_ ? n * block : block);
    if (collective == Collective::kReduceScatter) builder.blocks(n, 1);
    if (collective == Collective::kAllGather) builder.blocks(1, n);
    builder.message_chunks(q_);
    for (int c = 0; c < channels_; ++c) {
      channel_ = c;
      LaneBuilder& lane = builder.lane(c);
      if (collective != Collective::kAllGather) scatter(lane);
      if (collective != Collective::kReduceScatter) gather(lane);
    }
    return std::move(builder).build();
  }

 private:
  /// Returns a chunk of the buffer that has the blocks of all places.
  int chunk(int place, int offset) const { return (place * channels_ + channel_) * q_ + offset; }
  int chunk(int group, const Piece& piece) const {
    return chunk(groups_.first(group) + piece.block, piece.offset);
  }
  /// Returns a chunk of this place's block in the other buffer.
  int own(int offset) const { return whole_ ? chunk(me_, offset) : channel_ * q_ + offset; }
  /// Returns the member `steps` places behind this one, round the group.
  int member(int steps) const { return wrap(i_ + steps, size_); }

  /// Calls `visit(piece of a member, or nullptr)` for each round in which the members of this group
  /// go through their shares of the blocks of `of`.
  template <class Visit>
  void for_each_round(int of, Visit visit) const {
    std::vector<std::vector<Piece>> shares;
    std::size_t rounds = 0;
    for (int i = 0; i < size_; ++i) {
      shares.push_back(pieces_of(i, size_, groups_.size(of), q_));
      rounds = std::max(rounds, shares.back().size());
    }
    for (std::size_t r = 0; r < rounds; ++r) {
      visit([&](int i) {
        const std::vector<Piece>& share = shares[static_cast<std::size_t>(i)];
        return r < share.size() ? &share[r] : nullptr;
      });
    }
  }
  /// Calls `visit(place, piece)` for all members of another group that have a part of this place's
  /// block in their shares.
  template <class Visit>
  void for_each_part(int of, Visit visit) const {
    for (int i = 0; i < groups_.size(of); ++i) {
      for (const Piece& piece : pieces_of(i, groups_.size(of), size_, q_)) {
        if (piece.block == i_) visit(groups_.first(of) + i, piece);
      }
    }
  }

  /// Adds the reduce-scatter. The blocks of this place's group come last, because other groups wait
  /// for messages of the others.
  void scatter(LaneBuilder& lane) const {
    const int m = groups_.count(), first = groups_.first(group_);
    for (int k = 1; k <= m; ++k) {
      const int of = wrap(group_ + k, m);
      for_each_round(of, [&](auto piece_of) {
        for (int j = 1; j < size_; ++j) {
          const Piece* const piece = piece_of(member(j));
          if (piece == nullptr) continue;
          lane.peers(first + member(j), first + member(j));
          lane.send(chunk(of, *piece)).count(piece->count);
        }
        const Piece* const mine = piece_of(i_);
        if (mine == nullptr) return;
        const std::array to{groups_.first(of) + mine->block};
        if (of == group_) {
          if (size_ == 1) return;
          lane.peers(others_, others_).recv_reduce_copy(chunk(me_, 0), own(0));
        } else if (size_ == 1) {
          lane.peers(to, to).send(chunk(of, *mine));
        } else {
          lane.peers(to, others_).recv_reduce_send(chunk(of, *mine));
        }
        lane.count(mine->count);
      });
    }
    for (int k = 1; k < m; ++k) {
      const bool begins = k == 1 && size_ == 1; // nothing has been added so far
      lane.read(begins ? Buffer::kInput : Buffer::kOutput);
      for_each_part(wrap(group_ - k, m), [&](int from, const Piece& part) {
        const int sum = begins ? chunk(me_, part.offset) : own(part.offset);
        lane.peers(from, from).recv_reduce_copy(sum, own(part.offset)).count(part.count);
        if (k == m - 1) lane.final();
      });
    }
  }

  /// Adds the all-gather.
  void gather(LaneBuilder& lane) const {
    const int m = groups_.count(), first = groups_.first(group_);
    lane.read(whole_ ? Buffer::kOutput : Buffer::kInput);
    for (int k = 1; k < m; ++k) {
      for_each_part(wrap(group_ + k, m), [&](int to, const Piece& part) {
        lane.peers(to, to).send(own(part.offset)).count(part.count);
      });
    }
    if (size_ > 1) lane.peers(others_, others_).send(own(0)).count(q_);
    if (!whole_) lane.copy(own(0), chunk(me_, 0)).count(q_);
    for (int j = 1; j < size_; ++j) {
      const int from = first + member(-j);
      lane.peers(from, from).recv_copy(chunk(from, 0)).count(q_);
    }
    for (int k = 1; k < m; ++k) {
      const int of = wrap(group_ - k, m);
      for_each_round(of, [&](auto piece_of) {
        if (const Piece* const mine = piece_of(i_)) {
          const std::array from{groups_.first(of) + mine->block};
          lane.peers(others_, from);
          size_ > 1 ? lane.recv_copy_send(chunk(of, *mine)) : lane.recv_copy(chunk(of, *mine));
          lane.count(mine->count);
        }
        for (int j = 1; j < size_; ++j) {
          const Piece* const piece = piece_of(member(-j));
          if (piece == nullptr) continue;
          lane.peers(first + member(-j), first + member(-j));
          lane.recv_copy(chunk(of, *piece)).count(piece->count);
        }
      });
    }
  }

  Groups groups_;
  int channels_, q_; ///< q_: number of chunks that a lane has of a block
  bool whole_;       ///< whether the vector is one block, both in input and in output
  int me_, group_, i_, size_;
  std::vector<int> others_; ///< other members of this place's group
  int channel_ = 0;
};

/// Returns the largest number of pieces of a member's share.
int most_pieces(int members, int blocks, int chunks) {
  int most = 0;
  for (int i = 0; i < members; ++i) {
    const auto [begin, end] = share_of(i, members, blocks, chunks);
    if (begin < end) most = std::max(most, (end - 1) / chunks - begin / chunks + 1);
  }
  return most;
}

/// Counts that depend on the groups only.
struct Counts {
  Counts(const Groups& groups, int channels) : chunks(chunks_of_block(groups, channels)) {
    const auto sizes = groups.sizes();
    for (const auto& [members, count] : sizes) {
      int pieces = 1; // of the shares in the blocks of all groups
      for (const auto& [blocks, others] : sizes) {
        const int many = others - (blocks == members ? 1 : 0);
        pieces += many * most_pieces(members, blocks, chunks);
        partners +=
            static_cast<double>(count) * many * (members + blocks - std::gcd(members, blocks));
        equal = equal && blocks * chunks % members == 0;
      }
      if (members > 1) rounds = std::max(rounds, pieces);
      messages = std::max(messages, members * pieces - 1);
      inner_messages = std::max(inner_messages, (members - 1) * pieces);
      peers = std::max(peers, members - 1 + pieces - 1);
      partners += static_cast<double>(count) * members * (members - 1);
    }
  }
  int chunks;          ///< number of chunks of a block
  bool equal = true;   ///< whether all shares of a group are equal
  double partners = 0; ///< number of pairs that exchange messages, each counted twice
  int rounds = 0, messages = 0, inner_messages = 0, peers = 0; ///< largest numbers of any rank
};

} // namespace

bool uneven_supports(const Shape& shape) {
  if (!Groups::exist(shape) || !chunks_fit(shape)) return false;
  const Groups groups(shape);
  if (groups.largest() - 1 + groups.count() - 1 > kMaxPeers) return false;
  return Counts(groups, shape.channels).peers <= kMaxPeers;
}

Schedule build_uneven(const Shape& shape, int place, Collective collective) {
  return Writer(shape, place, collective).build(collective);
}

Cost uneven_cost(const Shape& shape, Collective collective) {
  const Groups groups(shape);
  const Counts counts(groups, shape.channels);
  const double n = shape.nranks, m = groups.count(), s = groups.largest();
  const bool scatters = collective != Collective::kAllGather;
  const double halves = collective == Collective::kAllReduce ? 2 : 1;
  // The busiest rank, in the largest group, reduces this share of the vector for its group.
  const double share = 1 / s + (counts.equal ? 0 : m / counts.chunks / n);
  const double inner = (s - 1) * share;
  const double volume = inner + (m - 1) / n, other = (n - 1) / n;
  return {.rounds = halves * (counts.rounds + 1),
          .volume = halves == 2 ? volume + other : volume,
          .sent = halves == 2 ? volume + other : (scatters ? other : volume),
          .received = halves == 2 ? volume + other : (scatters ? volume : other),
          .mean = halves * other,
          .fifos = counts.partners / n,
          .reduced = scatters ? volume : 0,
          .merged = scatters ? (s - 2) * share : 0,
          .messages = halves * counts.messages * shape.channels,
          .window = n * shape.channels,
          .inner = {LevelPart{.rounds = halves * counts.rounds,
                              .volume = halves * inner,
                              .messages = halves * counts.inner_messages * shape.channels}}};
}

} // namespace whorl
