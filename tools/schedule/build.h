#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "schedule/machine.h"
#include "schedule/schedule.h"
#include "schedule/verify.h"
#include "tools/schedule/arguments.h"

namespace whorl::schedule_tool {

/// Schedules, and the result of verify() for them.
struct Built {
  CollectiveSpec spec;
  std::string title;
  VerifyReport report;
  Status defect;
  std::vector<Schedule> schedules;
};

/// Builds the schedules of an algorithm, and proves them.
Result<Built> build(const Arguments& arguments);
/// Reads the schedules of all ranks from a file, as text or JSON, and proves them.
Result<Built> read(const Arguments& arguments);
/// Proves all forms (in place or not, messages copied or published) and sets the number of slots
/// that suffices for each.
void prove_all_forms(Built& built);

} // namespace whorl::schedule_tool
