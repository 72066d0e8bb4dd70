#include "engine/prove.h"

#include <fmt/core.h>

namespace whorl {

Status prove(const Algorithm& algorithm, const Shape& shape, std::span<const Schedule> schedules,
             std::span<const VerifyOptions> forms, int slots) {
  for (const bool in_place : {false, true}) {
    if (in_place && !has_in_place_form(algorithm.collective)) continue;
    for (const VerifyOptions& form : forms) {
      const auto report = verify(schedules, {algorithm.collective, shape.root, in_place}, form);
      if (!report.ok()) {
        return report.status().with_context(
            fmt::format("the schedule {} of {} for {} ranks is wrong", algorithm.name,
                        name_of(algorithm.collective), shape.nranks));
      }
      if (report->min_slots > slots) {
        return Status::error(
            Code::kInvalidUsage,
            fmt::format("the schedule {} of {} for {} ranks needs FIFOs of {} slots, and the "
                        "communicator has {}; raise WHORL_SLOTS or WHORL_MEMORY_BUDGET, or choose "
                        "another algorithm with WHORL_ALGO",
                        algorithm.name, name_of(algorithm.collective), shape.nranks,
                        report->min_slots, slots));
      }
    }
  }
  return {};
}

} // namespace whorl
