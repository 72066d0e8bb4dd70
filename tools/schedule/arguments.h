#pragma once

#include <optional>
#include <string>
#include <utility>

#include "algorithms/shape.h"
#include "base/status.h"
#include "base/types.h"

namespace whorl::schedule_tool {

inline constexpr int kMaxRanks = 4096; ///< more ranks take minutes and gigabytes

/// Arguments of whorl-schedule, as they were written.
struct Arguments {
  std::string collective, algorithm, dims, groups, order, svg, file;
  int nranks = 0, root = 0, channels = 1;
  std::optional<int> rank;
  bool text = false, json = false, in_place = false, published = false, placed = false;
};

/// Returns an error that `message` explains.
inline Status bad(std::string message) {
  return Status::error(Code::kInvalidArgument, std::move(message));
}

/// Returns the shape that the arguments describe.
Result<Shape> shape_of(const Arguments& arguments, Collective collective);

} // namespace whorl::schedule_tool
