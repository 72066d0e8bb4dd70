#include "tools/schedule/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <vector>

#include "algorithms/algorithm.h"

namespace whorl::schedule_tool {
namespace {

/// Parses dimensions such as "4:twoshot,2:ring", innermost first.
Result<std::vector<Dimension>> parse_dims(std::string_view text) {
  std::vector<Dimension> dims;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    Dimension dim;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), dim.size);
    const std::string_view rest(end, static_cast<std::size_t>(part.data() + part.size() - end));
    if (error != std::errc() || dim.size < 1 || (!rest.empty() && rest.front() != ':')) {
      return bad(fmt::format("--dims: \"{}\" is not a size or size:algorithm.", part));
    }
    if (!rest.empty()) dim.algorithm = rest.substr(1);
    dims.push_back(std::move(dim));
  }
  return dims;
}

/// Parses numbers such as "5,3".
Result<std::vector<int>> parse_numbers(std::string_view option, std::string_view text) {
  std::vector<int> numbers;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    int number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || end != part.data() + part.size()) {
      return bad(fmt::format("{}: \"{}\" is not a number.", option, part));
    }
    numbers.push_back(number);
  }
  return numbers;
}

/// Adds the dimensions to a shape.
Status set_dims(const Arguments& arguments, Collective collective, Shape& shape) {
  auto dims = parse_dims(arguments.dims);
  if (!dims.ok()) return dims.status();
  std::int64_t product = 1;
  for (const Dimension& dim : *dims) {
    product *= dim.size;
    if (product > kMaxRanks) break;
    if (!dim.algorithm.empty() && find_algorithm(collective, dim.algorithm) == nullptr) {
      return bad(fmt::format("--dims: there is no algorithm \"{}\" for {}.", dim.algorithm,
                             arguments.collective));
    }
  }
  if (!dims->empty() && product != shape.nranks) {
    return bad(fmt::format("--dims: the sizes do not multiply to {} ranks.", shape.nranks));
  }
  shape.dims = *std::move(dims);
  return {};
}

/// Adds the sizes of unequal groups to a shape.
Status set_groups(const Arguments& arguments, Shape& shape) {
  auto groups = parse_numbers("--groups", arguments.groups);
  if (!groups.ok()) return groups.status();
  if (!groups->empty() && !shape.dims.empty()) return bad("--groups does not go with --dims.");
  std::int64_t ranks = 0;
  for (const int size : *groups) {
    if (size < 1) return bad(fmt::format("--groups: {} is not a size.", size));
    ranks += size;
  }
  if (!groups->empty() && ranks != shape.nranks) {
    return bad(fmt::format("--groups: the sizes do not add up to {} ranks.", shape.nranks));
  }
  shape.groups = *std::move(groups);
  return {};
}

/// Adds the order of ranks to a shape.
Status set_order(const Arguments& arguments, Shape& shape) {
  auto order = parse_numbers("--order", arguments.order);
  if (!order.ok()) return order.status();
  std::vector<int> sorted = *order;
  std::sort(sorted.begin(), sorted.end());
  bool all = sorted.empty() || static_cast<int>(sorted.size()) == shape.nranks;
  for (std::size_t i = 0; i < sorted.size(); ++i) all = all && sorted[i] == static_cast<int>(i);
  if (!all) {
    return bad(
        fmt::format("--order: each of the ranks 0 to {} must be there once.", shape.nranks - 1));
  }
  shape.order = *std::move(order);
  return {};
}

} // namespace

Result<Shape> shape_of(const Arguments& arguments, Collective collective) {
  Shape shape;
  shape.nranks = arguments.nranks;
  shape.root = arguments.root;
  shape.channels = arguments.channels;
  if (shape.nranks < 1 || shape.nranks > kMaxRanks) {
    return bad(
        fmt::format("The number of ranks must be 1 to {}, not {}.", kMaxRanks, shape.nranks));
  }
  if (shape.root < 0 || shape.root >= shape.nranks) {
    return bad(fmt::format("--root must be 0 to {}, not {}.", shape.nranks - 1, shape.root));
  }
  if (shape.channels < 1 || shape.channels > 64) {
    return bad(fmt::format("--channels must be 1 to 64, not {}.", shape.channels));
  }
  if (arguments.rank && (*arguments.rank < 0 || *arguments.rank >= shape.nranks)) {
    return bad(fmt::format("--rank must be 0 to {}, not {}.", shape.nranks - 1, *arguments.rank));
  }
  WHORL_TRY(set_dims(arguments, collective, shape));
  WHORL_TRY(set_groups(arguments, shape));
  WHORL_TRY(set_order(arguments, shape));
  return shape;
}

} // namespace whorl::schedule_tool
