#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace whorl::topology {

/// Network of directed edges with capacities, for maximum flows by Dinic's algorithm.
class FlowNetwork {
 public:
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

  explicit FlowNetwork(std::size_t nodes) : edges_of_(nodes) {}

  std::size_t add_node() {
    edges_of_.emplace_back();
    return edges_of_.size() - 1;
  }
  /// Adds an edge; returns its number.
  std::size_t add_edge(std::size_t from, std::size_t to, double capacity);
  void set_capacity(std::size_t edge, double capacity) { edges_[edge].capacity = capacity; }
  std::size_t nodes() const noexcept { return edges_of_.size(); }

  /// Returns the maximum flow from one node to another; kUnlimited if no edge limits it.
  double max_flow(std::size_t from, std::size_t to);
  /// Returns for each node whether it is on the side of the source in the minimum cut that the last
  /// flow found.
  std::vector<bool> source_side(std::size_t from) const;

 private:
  struct Edge {
    std::size_t to = 0;
    double capacity = 0;
    double left = 0; ///< capacity that the flow leaves
  };

  bool find_levels(std::size_t from, std::size_t to);
  double push(std::size_t node, std::size_t to, double most);

  std::vector<Edge> edges_; ///< an edge has an even number, its reverse the next one
  std::vector<std::vector<std::size_t>> edges_of_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
};

} // namespace whorl::topology
