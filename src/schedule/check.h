#pragma once

#include <span>

#include "base/status.h"
#include "schedule/schedule.h"
#include "schedule/verify.h"

namespace whorl {

/// Checks the part of verify() that needs no execution: the schedules fit together and to the
/// collective, all fields are in range, and fields that a step does not use have their default
/// values. Schedules that pass can be given to a Machine.
Status check_fields(std::span<const Schedule> schedules, const CollectiveSpec& spec);

} // namespace whorl
