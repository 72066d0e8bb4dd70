#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "topology/graph.h"

namespace whorl::topology {

/// Parts of a machine whose capacity is known, each in one direction, and which of them data passes
/// from one device to another on the way that find_path() describes.
class Routes {
 public:
  Routes(const Graph& graph, const std::vector<int>& devices);

  std::size_t size() const noexcept { return size_; }
  /// Returns the capacity of each part; all are known and positive.
  const std::vector<Bandwidth>& parts() const noexcept { return parts_; }
  /// Returns numbers of the parts between two devices, which are given by their places.
  const std::vector<std::size_t>& between(std::size_t from, std::size_t to) const {
    return hops_[from * size_ + to].parts;
  }
  /// Returns whether links beside PCI connect two devices.
  bool over_links(std::size_t from, std::size_t to) const {
    return hops_[from * size_ + to].over_links;
  }

 private:
  /// Way from one device to another.
  struct Hop {
    std::vector<std::size_t> parts;
    bool over_links = false;
  };

  /// Adds to `hop` the part from one node straight to another, if its capacity is known.
  void pass(Hop& hop, int from, int to, const Bandwidth& bandwidth);

  std::size_t size_ = 0;
  std::vector<Hop> hops_; ///< hops by pairs of devices
  std::vector<Bandwidth> parts_;
  std::map<std::pair<int, int>, std::size_t> numbers_; ///< numbers of parts by their ends
};

} // namespace whorl::topology
