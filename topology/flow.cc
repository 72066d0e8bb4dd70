#include "topology/flow.h"

#include <algorithm>

namespace whorl::topology {
namespace {

/// Remainder that counts as nothing: capacities are GB/s, and sums of them are rounded.
constexpr double kNothing = 1e-9;

} // namespace

std::size_t FlowNetwork::add_edge(std::size_t from, std::size_t to, double capacity) {
  edges_.push_back({.to = to, .capacity = capacity});
  edges_.push_back({.to = from});
  edges_of_[from].push_back(edges_.size() - 2);
  edges_of_[to].push_back(edges_.size() - 1);
  return edges_.size() - 2;
}

double FlowNetwork::max_flow(std::size_t from, std::size_t to) {
  if (from == to) return kUnlimited;
  double finite = 0;
  for (Edge& edge : edges_) {
    edge.left = edge.capacity;
    if (edge.capacity != kUnlimited) finite += edge.capacity;
  }
  // An unlimited edge carries at most what all limited ones carry, and then some: a flow that is
  // larger passes none of them.
  const double unlimited = 2 * finite + 1;
  for (Edge& edge : edges_) edge.left = std::min(edge.left, unlimited);
  double flow = 0;
  while (find_levels(from, to)) {
    next_.assign(edges_of_.size(), 0);
    for (double more = push(from, to, kUnlimited); more > 0; more = push(from, to, kUnlimited)) {
      flow += more;
    }
  }
  return flow > finite ? kUnlimited : flow;
}

std::vector<bool> FlowNetwork::source_side(std::size_t from) const {
  std::vector<bool> reached(edges_of_.size());
  std::vector<std::size_t> waiting = {from};
  reached[from] = true;
  while (!waiting.empty()) {
    const std::size_t node = waiting.back();
    waiting.pop_back();
    for (const std::size_t edge : edges_of_[node]) {
      if (edges_[edge].left <= kNothing || reached[edges_[edge].to]) continue;
      reached[edges_[edge].to] = true;
      waiting.push_back(edges_[edge].to);
    }
  }
  return reached;
}

bool FlowNetwork::find_levels(std::size_t from, std::size_t to) {
  level_.assign(edges_of_.size(), -1);
  level_[from] = 0;
  std::vector<std::size_t> queue = {from};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const std::size_t edge : edges_of_[queue[i]]) {
      const std::size_t node = edges_[edge].to;
      if (edges_[edge].left <= kNothing || level_[node] >= 0) continue;
      level_[node] = level_[queue[i]] + 1;
      queue.push_back(node);
    }
  }
  return level_[to] >= 0;
}

double FlowNetwork::push(std::size_t node, std::size_t to, double most) {
  if (node == to) return most;
  for (std::size_t& i = next_[node]; i < edges_of_[node].size(); ++i) {
    const std::size_t edge = edges_of_[node][i];
    if (edges_[edge].left <= kNothing || level_[edges_[edge].to] != level_[node] + 1) continue;
    const double flow = push(edges_[edge].to, to, std::min(most, edges_[edge].left));
    if (flow <= 0) continue;
    edges_[edge].left -= flow;
    edges_[edge ^ 1U].left += flow;
    return flow;
  }
  return 0;
}

} // namespace whorl::topology
