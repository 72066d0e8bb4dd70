// Double binary tree (P. Sanders, J. Speck, J. L. Träff, "Two-tree algorithms for full bandwidth
// broadcast, reduction and scan", 2009). Half of the chunks go through one tree, half through
// another in which the leaves of the first are the interior nodes, so that every rank sends and
// receives about as much as every other. With depth D = ⌊log2 p⌋ and k chunks in a pipeline, which
// count as one round where they follow each other directly:
//
//     allreduce          2·D + k − 2 rounds, 2·n bytes sent, n reduced
//     broadcast, reduce  1+⌊log2(p−1)⌋ rounds, n bytes sent (received and reduced)
//
// (with an even number of channels). In an allreduce a rank sends a chunk up only after one that
// has come down, so the k − 2 chunks between the first and the last add a round each.
//
// Both trees are in-order: node i ∈ 1…p has as many levels below it as i has trailing zero bits. So
// odd nodes are leaves and even ones are not; the second tree numbers the ranks with the parity
// swapped, mirrored for an even p and moved by one for an odd p (one rank is then a leaf in both).
//
//     tree 0 of ranks 0…6 (node = rank + 1)     tree 1 (node = rank + 2, rank 6 is node 1)
//               3                                         2
//           ┌───┴───┐                                 ┌───┴───┐
//           1       5                                 0       4
//         ┌─┴─┐   ┌─┴─┐                             ┌─┴─┐   ┌─┴─┐
//         0   2   4   6                             6   1   3   5
//
// With a root, both trees span the other p−1 ranks, and the root hangs above their tops.
// Lane c uses tree c mod 2; a single channel has only the first tree.
#include "algorithms/tree.h"

#include <algorithm>
#include <array>
#include <utility>

#include "algorithms/common.h"

namespace whorl {
namespace {

constexpr int kChunks = kPipelineChunks;

/// Position of a member in one of the two trees of `size` members 0 … size−1.
class Place {
 public:
  Place(int size, int tree, int member) : size_(size), tree_(tree) {
    const int top = 1 << floor_log2(size);
    int node = node_of(member);
    const int step = (node & -node) / 2; // distance to the children in a whole tree
    if (step > 0) {
      children.push_back(member_of(node - step));
      // A missing right child is replaced by its left child.
      int right = step;
      while (right > 0 && node + right > size) right /= 2;
      if (right > 0) children.push_back(member_of(node + right));
    }
    if (node != top) parent = member_of(above(node));
    for (; node != top; node = above(node)) ++level;
  }
  int parent = -1; ///< parent member; −1: this member is the top
  int level = 0;   ///< distance from the top
  std::vector<int> children;

  /// Returns the member at the top of a tree.
  static int top(int size, int tree) {
    Place place(size, tree, 0);
    return place.member_of(1 << floor_log2(size));
  }

 private:
  int above(int node) const {
    do {
      const int bit = node & -node;
      node = (node & ~bit) | (2 * bit);
    } while (node > size_);
    return node;
  }
  int node_of(int member) const {
    if (tree_ == 0) return member + 1;
    return size_ % 2 == 0 ? size_ - member : (member + 1) % size_ + 1;
  }
  int member_of(int node) const {
    if (tree_ == 0) return node - 1;
    return size_ % 2 == 0 ? size_ - node : wrap(node - 2, size_);
  }

  int size_, tree_;
};

Schedule build_allreduce(const Shape& shape, int rank) {
  ScheduleBuilder builder(shape.nranks, rank, kChunks * shape.channels);
  for (int c = 0; c < shape.channels; ++c) {
    const Place place(shape.nranks, c % 2, rank);
    const std::vector<int> parent{place.parent};
    const bool leaf = place.children.empty();
    LaneBuilder& lane = builder.lane(c);
    const int begin = c * kChunks;
    if (place.parent < 0) {
      lane.peers(place.children, place.children);
      lane.recv_reduce_copy_send(begin, begin).final().repeat(kChunks, 1);
      continue;
    }
    const auto up = [&](int chunk, int times) {
      lane.peers(parent, place.children);
      (leaf ? lane.send(begin + chunk) : lane.recv_reduce_send(begin + chunk)).repeat(times, 1);
    };
    const auto down = [&](int chunk, int times) {
      lane.peers(place.children, parent);
      (leaf ? lane.recv_copy(begin + chunk) : lane.recv_copy_send(begin + chunk)).repeat(times, 1);
    };
    // A chunk returns from the top after two messages for each level. So that neither direction
    // waits for the other, this many chunks go up before the first one is awaited.
    const int ahead = std::min(kChunks, 2 * place.level);
    up(0, ahead);
    for (int chunk = ahead; chunk < kChunks; ++chunk) {
      down(chunk - ahead, 1);
      up(chunk, 1);
    }
    down(kChunks - ahead, ahead);
  }
  return std::move(builder).build();
}

/// Position of a rank in a broadcast or a reduction: the root is above the tree of the others.
struct RootedPlace {
  RootedPlace(const Shape& shape, int rank, int tree) {
    const int others = shape.nranks - 1;
    const auto rank_of = [&](int member) { return wrap(shape.root + 1 + member, shape.nranks); };
    if (rank == shape.root) {
      children.push_back(rank_of(Place::top(others, tree)));
      return;
    }
    const Place place(others, tree, wrap(rank - shape.root - 1, shape.nranks));
    parent.push_back(place.parent < 0 ? shape.root : rank_of(place.parent));
    for (const int child : place.children) children.push_back(rank_of(child));
  }
  std::vector<int> parent, children;
};

Schedule build_broadcast(const Shape& shape, int rank) {
  ScheduleBuilder builder(shape.nranks, rank, kChunks * shape.channels);
  if (rank != shape.root) builder.blocks(0, 1);
  for (int c = 0; c < shape.channels; ++c) {
    const RootedPlace place(shape, rank, c % 2);
    LaneBuilder& lane = builder.lane(c);
    const int begin = c * kChunks;
    lane.peers(place.children, place.parent);
    if (rank == shape.root) {
      lane.send(begin).repeat(kChunks, 1).copy(begin, begin).repeat(kChunks, 1);
    } else {
      (place.children.empty() ? lane.recv_copy(begin) : lane.recv_copy_send(begin))
          .repeat(kChunks, 1);
    }
  }
  return std::move(builder).build();
}

Schedule build_reduce(const Shape& shape, int rank) {
  ScheduleBuilder builder(shape.nranks, rank, kChunks * shape.channels);
  if (rank != shape.root) builder.blocks(1, 0);
  for (int c = 0; c < shape.channels; ++c) {
    const RootedPlace place(shape, rank, c % 2);
    LaneBuilder& lane = builder.lane(c);
    const int begin = c * kChunks;
    lane.peers(place.parent, place.children);
    if (rank == shape.root) {
      lane.recv_reduce_copy(begin, begin).final().repeat(kChunks, 1);
    } else {
      (place.children.empty() ? lane.send(begin) : lane.recv_reduce_send(begin)).repeat(kChunks, 1);
    }
  }
  return std::move(builder).build();
}

bool supports(const Shape& shape) {
  return static_cast<long>(shape.channels) * kChunks <= kMaxChunks;
}

/// Returns the share of the channels that use tree 0; the others use tree 1.
double first_share(const Shape& shape) {
  return static_cast<double>((shape.channels + 1) / 2) / shape.channels;
}

Cost allreduce_cost(const Shape& shape) {
  const double share = first_share(shape);
  const double chunks = kChunks * shape.channels;
  const double depth = floor_log2(shape.nranks);
  // Interior in the first tree (a message up, two down), leaf in the second (one message up).
  const double volume = std::min(3, shape.nranks - 1) * share + (1 - share);
  const double n = shape.nranks;
  // A chunk is sent up after one that has come down, so a chain goes through all of them.
  return {.rounds = 2 * depth + kChunks - 2,
          .volume = volume,
          .sent = volume,
          .received = volume,
          .mean = 2 * (n - 1) / n,
          .fifos = 2 * (n - 1) / n,
          .reduced = std::min(2, shape.nranks - 1) * share,
          .merged = shape.nranks > 2 ? share : 0,
          .messages = volume * chunks,
          .window = chunks,
          .fill = (2 * depth - 1) / kChunks};
}

Cost broadcast_cost(const Shape& shape) {
  const double chunks = kChunks * shape.channels;
  const double depth = 1 + floor_log2(shape.nranks - 1);
  const double volume = std::max(1.0, std::min(2, shape.nranks - 2) * first_share(shape));
  const double n = shape.nranks;
  return {.rounds = depth,
          .volume = volume,
          .sent = volume,
          .received = n > 2 ? 1.0 : 0.0,
          .mean = (n - 1) / n,
          .fifos = (n - 1) / n,
          .messages = volume * chunks,
          .window = chunks,
          // Over a single link, sender and receiver gain nothing from working at the same time in
          // pieces of an eighth, which are often too small for non-temporal stores.
          .fill = n > 2 ? (depth - 1) / kChunks : 1,
          .streams = true};
}

Cost reduce_cost(const Shape& shape) { return reduction_of(broadcast_cost(shape)); }

constexpr std::array kAlgorithms{
    Algorithm{"tree", Collective::kAllReduce, supports, build_allreduce, allreduce_cost},
    Algorithm{"tree", Collective::kBroadcast, supports, build_broadcast, broadcast_cost},
    Algorithm{"tree", Collective::kReduce, supports, build_reduce, reduce_cost},
};

} // namespace

std::span<const Algorithm> tree_algorithms() { return kAlgorithms; }

} // namespace whorl
