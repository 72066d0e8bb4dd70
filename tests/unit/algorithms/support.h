#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "schedule/verify.h"

namespace whorl {

/// Prints a parameter for GoogleTest.
inline void PrintTo(const Algorithm& algorithm, std::ostream* out) {
  *out << name_of(algorithm.collective) << ":" << algorithm.name;
}

inline std::string name_of_test(const ::testing::TestParamInfo<Algorithm>& info) {
  return fmt::format("{}_{}", name_of(info.param.collective), info.param.name);
}

} // namespace whorl

namespace whorl::test {

/// Most ranks of the shapes that take long and that the quick suite verifies all the same.
inline constexpr int kFewRanks = 32;

inline bool has_in_place(Collective collective) {
  return collective != Collective::kAllToAll && collective != Collective::kSend &&
         collective != Collective::kRecv;
}

/// Returns whether the algorithm is only for groups of ranks.
inline bool needs_dims(const Algorithm& algorithm) {
  return algorithm.name == "hierarchical" || algorithm.name == "leaders";
}

inline std::string text(const Algorithm& algorithm, const Shape& shape) {
  std::string dims;
  for (const Dimension& dim : shape.dims) {
    dims += fmt::format(" {}{}{}", dim.size, dim.algorithm.empty() ? "" : ":", dim.algorithm);
  }
  const auto list = [](const char* name, const std::vector<int>& numbers) {
    return numbers.empty() ? "" : fmt::format(" {}={}", name, fmt::join(numbers, ","));
  };
  return fmt::format("{}:{} nranks={} root={} channels={}{}{}{}{}", name_of(algorithm.collective),
                     algorithm.name, shape.nranks, shape.root, shape.channels,
                     list("order", shape.order), list("groups", shape.groups),
                     dims.empty() ? "" : " dims", dims);
}

/// Verifies the schedules of all ranks in all forms: out of place and in place, with messages that
/// hold copies, with published ones, and with published and placed ones. `all_forms` = false: only
/// the plainest form and the most intricate one.
inline ::testing::AssertionResult verifies(const Algorithm& algorithm, const Shape& shape,
                                           bool all_forms = true) {
  const std::vector<Schedule> schedules = build_all(algorithm, shape);
  for (const bool in_place : {false, true}) {
    if (in_place && !has_in_place(algorithm.collective)) continue;
    struct Form {
      const char* name;
      VerifyOptions options;
    };
    const Form copied{"", {}}, published{" published", {.published = true}},
        placed{" placed", {.published = true, .placed = true}};
    for (const Form& each : {copied, published, placed}) {
      const bool plainest = !in_place && !each.options.published;
      const bool hardest = in_place == has_in_place(algorithm.collective) && each.options.placed;
      if (!all_forms && !plainest && !hardest) continue;
      const CollectiveSpec spec{algorithm.collective, shape.root, in_place};
      const auto report = verify(schedules, spec, each.options);
      const std::string form =
          fmt::format("{}{}{}", text(algorithm, shape), in_place ? " in place" : "", each.name);
      if (!report.ok()) {
        return ::testing::AssertionFailure() << form << ": " << report.status().message();
      }
      if (report->min_slots > kMinSlots) {
        return ::testing::AssertionFailure() << form << ": needs " << report->min_slots << " slots";
      }
    }
  }
  return ::testing::AssertionSuccess();
}

/// Work of one rank in one window.
struct Load {
  int sent_chunks = 0, received_chunks = 0, reduced_chunks = 0;
  int sent_messages = 0, received_messages = 0;
  int max_steps = 0; ///< number of steps of the longest lane
};

inline Load load_of(const Schedule& schedule) {
  Load load;
  for (const Lane& lane : schedule.lanes) {
    load.max_steps = std::max(load.max_steps, static_cast<int>(lane.steps.size()));
    for (const Step& step : lane.steps) {
      if (step.waits()) continue;
      const int chunks = step.count * step.repeat;
      load.sent_chunks += step.fan_out() * chunks;
      load.received_chunks += step.fan_in() * chunks;
      load.sent_messages += step.fan_out() * step.repeat;
      load.received_messages += step.fan_in() * step.repeat;
      if (step.reduces()) load.reduced_chunks += std::max(1, step.fan_in()) * chunks;
    }
  }
  return load;
}

} // namespace whorl::test
