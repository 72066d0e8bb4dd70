#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "schedule/schedule.h"

namespace whorl {

/// Writes schedules as a JSON array of objects with the names of the fields in schedule.h;
/// operations are text ("recv_reduce_send") with a field `final`, buffers are "input", "output" and
/// "scratch".
std::string to_json(std::span<const Schedule> schedules);

/// Reads what to_json() writes. A missing field has its default; an unknown one is an error. The
/// error names the place as a JSON pointer. The schedules are not verified.
Result<std::vector<Schedule>> schedules_from_json(std::string_view text);

} // namespace whorl
