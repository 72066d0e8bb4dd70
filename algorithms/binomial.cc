// Binomial tree: few messages for the root, each rank at most ⌊log2 p⌋ messages away from it. For
// small sizes on many ranks. Standard since the first MPI libraries; see R. Thakur, R.
// Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
//
//     gather, scatter    ⌊log2 p⌋ rounds, (p−1)/p·n bytes received or sent by root
//     broadcast, reduce  ⌊log2 p⌋ rounds, ⌈log2 p⌉·n bytes sent by root (received and reduced)
//
// Ranks count from the root: v = (rank − root) mod p. The parent of v is v without its lowest set
// bit, and the subtree of v is the interval [v, v + lowest set bit), which makes its blocks one
// message.
//
//     p = 8        0
//           ┌──────┼───┐
//           4      2   1
//         ┌─┴─┐    │
//         6   5    3
//         │
//         7
#include "algorithms/binomial.h"

#include <algorithm>
#include <array>
#include <utility>

#include "algorithms/common.h"

namespace whorl {
namespace {

struct Node {
  Node(const Shape& shape, int rank)
      : n(shape.nranks), root(shape.root), v(wrap(rank - shape.root, n)) {
    const int span = v == 0 ? 1 << ceil_log2(n) : v & -v;
    for (int bit = 1; bit < span && v + bit < n; bit *= 2) children.push_back(v + bit);
    size = std::min(span, n - v);
  }
  int rank_of(int node) const { return wrap(root + node, n); }
  int parent() const { return rank_of(v & (v - 1)); }
  /// Returns the number of members in the subtree of a child.
  int size_of(int child) const { return std::min(child - v, n - child); }
  /// Returns how many blocks of this subtree come before their ranks wrap from n−1 to 0. The root's
  /// buffer is in order of rank, so blocks on both sides of that place are two messages.
  int before_wrap() const { return std::min(size, n - rank_of(v)); }

  int n, root, v, size = 1;
  std::vector<int> children; ///< nodes, smallest subtree first
};

/// Returns the number of blocks of the largest subtree below a root.
int largest_message(int nranks) {
  const int top = 1 << (ceil_log2(nranks) - 1);
  return std::max(top / 2, std::min(top, nranks - top));
}

Schedule build_gather(const Shape& shape, int rank) {
  const Node node(shape, rank);
  ScheduleBuilder builder(node.n, rank, 1);
  builder.blocks(1, node.v == 0 ? node.n : 0).message_chunks(largest_message(node.n));
  LaneBuilder& lane = builder.lane(0);
  if (node.v == 0) {
    lane.copy(0, rank);
    for (const int child : node.children) {
      lane.peers(node.rank_of(child), node.rank_of(child));
      lane.recv_copy(node.rank_of(child)).count(node.size_of(child));
    }
    return std::move(builder).build();
  }
  if (node.size == 1) {
    lane.peers(node.parent(), node.parent()).send(0);
    return std::move(builder).build();
  }
  builder.scratch(std::vector<std::uint16_t>(static_cast<std::size_t>(node.size), 0));
  lane.write(Buffer::kScratch).copy(0, 0);
  for (const int child : node.children) {
    lane.peers(node.rank_of(child), node.rank_of(child));
    lane.recv_copy(child - node.v).count(node.size_of(child));
  }
  lane.read(Buffer::kScratch).peers(node.parent(), node.parent());
  const int first = node.parent() == shape.root ? node.before_wrap() : node.size;
  lane.send(0).count(first);
  if (first < node.size) lane.send(first).count(node.size - first);
  return std::move(builder).build();
}

Schedule build_scatter(const Shape& shape, int rank) {
  const Node node(shape, rank);
  ScheduleBuilder builder(node.n, rank, 1);
  builder.blocks(node.v == 0 ? node.n : 0, 1).message_chunks(largest_message(node.n));
  LaneBuilder& lane = builder.lane(0);
  if (node.v != 0 && node.size == 1) {
    lane.peers(node.parent(), node.parent()).recv_copy(0);
    return std::move(builder).build();
  }
  if (node.v != 0) {
    builder.scratch(std::vector<std::uint16_t>(static_cast<std::size_t>(node.size), 0));
    lane.peers(node.parent(), node.parent()).write(Buffer::kScratch);
    const int first = node.parent() == shape.root ? node.before_wrap() : node.size;
    lane.recv_copy(0).count(first);
    if (first < node.size) lane.recv_copy(first).count(node.size - first);
    lane.read(Buffer::kScratch).write(Buffer::kOutput);
  }
  // The largest subtree has the longest way to go, so it comes first.
  for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
    lane.peers(node.rank_of(*child), node.rank_of(*child));
    lane.send(node.v == 0 ? node.rank_of(*child) : *child - node.v).count(node.size_of(*child));
  }
  lane.copy(node.v == 0 ? rank : 0, 0);
  return std::move(builder).build();
}

Schedule build_broadcast(const Shape& shape, int rank) {
  const Node node(shape, rank);
  ScheduleBuilder builder(node.n, rank, shape.channels);
  if (node.v != 0) builder.blocks(0, 1);
  for (int c = 0; c < shape.channels; ++c) {
    LaneBuilder& lane = builder.lane(c);
    if (node.v != 0) {
      lane.peers(node.parent(), node.parent()).recv_copy(c).read(Buffer::kOutput);
    }
    for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
      lane.peers(node.rank_of(*child), node.rank_of(*child)).send(c);
    }
    if (node.v == 0) lane.copy(c, c);
  }
  return std::move(builder).build();
}

Schedule build_reduce(const Shape& shape, int rank) {
  const Node node(shape, rank);
  std::vector<int> children;
  for (const int child : node.children) children.push_back(node.rank_of(child));
  const std::vector<int> parent{node.parent()};
  ScheduleBuilder builder(node.n, rank, shape.channels);
  if (node.v != 0) builder.blocks(1, 0);
  for (int c = 0; c < shape.channels; ++c) {
    LaneBuilder& lane = builder.lane(c).peers(parent, children);
    if (node.v == 0) {
      lane.recv_reduce_copy(c, c).final();
    } else {
      children.empty() ? lane.send(c) : lane.recv_reduce_send(c);
    }
  }
  return std::move(builder).build();
}

bool supports_blocks(const Shape& shape) { return shape.nranks <= kMaxChunks; }
bool supports_vector(const Shape& shape) { return shape.channels <= kMaxChunks; }

Cost scatter_cost(const Shape& shape) {
  const double n = shape.nranks;
  // Each block moves once for every bit that is set in the number of its node.
  double blocks = 0;
  for (int bit = 1; bit < shape.nranks; bit *= 2) {
    for (int v = bit; v < shape.nranks; v += 2 * bit) blocks += std::min(bit, shape.nranks - v);
  }
  return {.rounds = static_cast<double>(floor_log2(shape.nranks)),
          .volume = (n - 1) / n,
          .sent = (n - 1) / n,
          .mean = blocks / (n * n),
          .fifos = (n - 1) / n,
          .copied = sorted_blocks(shape),
          .messages = static_cast<double>(ceil_log2(shape.nranks)),
          .window = n / largest_message(shape.nranks),
          .streams = true};
}

Cost gather_cost(const Shape& shape) {
  Cost cost = scatter_cost(shape);
  std::swap(cost.sent, cost.received);
  return cost;
}

Cost broadcast_cost(const Shape& shape) {
  const double n = shape.nranks;
  const double children = ceil_log2(shape.nranks);
  return {.rounds = static_cast<double>(floor_log2(shape.nranks)),
          .volume = children,
          .sent = children,
          .mean = (n - 1) / n,
          .fifos = (n - 1) / n,
          .messages = children * shape.channels,
          .window = static_cast<double>(shape.channels),
          .streams = true};
}

Cost reduce_cost(const Shape& shape) { return reduction_of(broadcast_cost(shape)); }

constexpr std::array kAlgorithms{
    Algorithm{"binomial", Collective::kReduce, supports_vector, build_reduce, reduce_cost},
    Algorithm{"binomial", Collective::kBroadcast, supports_vector, build_broadcast, broadcast_cost},
    Algorithm{"binomial", Collective::kGather, supports_blocks, build_gather, gather_cost},
    Algorithm{"binomial", Collective::kScatter, supports_blocks, build_scatter, scatter_cost},
};

} // namespace

std::span<const Algorithm> binomial_algorithms() { return kAlgorithms; }

} // namespace whorl
