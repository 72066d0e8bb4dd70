#include "algorithms/groups.h"

#include <algorithm>
#include <numeric>

namespace whorl {

bool Groups::exist(const Shape& shape) {
  if (shape.groups.empty()) {
    if (shape.dims.size() < 2) return false;
    const int size = shape.dims.front().size;
    return size >= 2 && shape.nranks % size == 0 && shape.nranks / size >= 2;
  }
  long places = 0;
  for (const int size : shape.groups) {
    if (size < 1) return false;
    places += size;
  }
  const auto groups = static_cast<long>(shape.groups.size());
  return places == shape.nranks && groups >= 2 && groups < places;
}

Groups::Groups(const Shape& shape) : first_{0} {
  if (shape.groups.empty()) {
    const int size = shape.dims.front().size;
    while (first_.back() < shape.nranks) first_.push_back(first_.back() + size);
  } else {
    for (const int size : shape.groups) first_.push_back(first_.back() + size);
  }
}

int Groups::largest() const {
  int most = 0;
  for (int group = 0; group < count(); ++group) most = std::max(most, size(group));
  return most;
}

int Groups::of(int place) const {
  return static_cast<int>(std::upper_bound(first_.begin(), first_.end(), place) - first_.begin()) -
         1;
}

std::vector<int> Groups::members(int group) const {
  std::vector<int> members(static_cast<std::size_t>(size(group)));
  std::iota(members.begin(), members.end(), first(group));
  return members;
}

std::map<int, int> Groups::sizes() const {
  std::map<int, int> sizes;
  for (int group = 0; group < count(); ++group) ++sizes[size(group)];
  return sizes;
}

std::vector<std::vector<int>> divisions(const Shape& shape) {
  std::vector<std::vector<int>> found;
  if (!shape.groups.empty()) {
    auto& starts = found.emplace_back(1, 0);
    for (const int size : shape.groups) starts.push_back(starts.back() + size);
    return found;
  }
  int inside = 1;
  for (const Dimension& dimension : shape.dims) {
    inside *= dimension.size;
    if (dimension.size == 1 || inside >= shape.nranks || found.size() + 1 == kMaxLevels) continue;
    auto& starts = found.emplace_back(1, 0);
    while (starts.back() < shape.nranks) starts.push_back(starts.back() + inside);
  }
  return found;
}

} // namespace whorl
