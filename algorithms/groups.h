#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "algorithms/shape.h"

namespace whorl {

/// Division of the places into groups that follow each other, of any sizes.
class Groups {
 public:
  /// Returns whether the shape has two groups or more, one of them of two places or more.
  static bool exist(const Shape& shape);
  /// Takes the groups of the shape, or those of its innermost dimension, which must exist.
  explicit Groups(const Shape& shape);

  int count() const noexcept { return static_cast<int>(first_.size()) - 1; }
  int places() const noexcept { return first_.back(); }
  /// Returns the first place of a group.
  int first(int group) const { return first_[static_cast<std::size_t>(group)]; }
  int size(int group) const { return first(group + 1) - first(group); }
  int largest() const;
  /// Returns the group of a place.
  int of(int place) const;
  std::vector<int> members(int group) const;
  /// Returns the number of groups of each size.
  std::map<int, int> sizes() const;

 private:
  std::vector<int> first_; ///< first place of each group, and behind the last one
};

/// Number of levels of links that costs tell apart.
inline constexpr std::size_t kMaxLevels = 4;

/// Divides the places by each level of the shape but the outermost, innermost first: each entry has
/// the first place of every group, and the number of places at the end. At most kMaxLevels − 1
/// entries; levels further out count as part of the outermost one.
std::vector<std::vector<int>> divisions(const Shape& shape);

} // namespace whorl
