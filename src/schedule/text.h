#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "schedule/schedule.h"

namespace whorl {

/// Writes schedules in a form to read, compare and write by hand. One line for each schedule, lane
/// and step; indentation, empty lines and text after a `;` are ignored:
///
///     schedule rank=0/3 chunks_per_block=3 input=3 output=3 message_chunks=1 min_slots=2
///     lane channel=0 peers=1,2
///       send i2 >1
///       recv_reduce_send <2 i1 >1
///       recv_reduce_copy_send <2 i0 -> o0 >1 final
///       recv_copy_send <2 -> o2 >1 x2 by -1
///
/// A step is: operations, `<` ranks received from, source, `->` target, `>` ranks sent to, `x`
/// repetitions `by` stride, `final`. Chunks are `i`, `o` or `s` for input, output or scratch, with
/// an index, and `..` the last index where there are several: `s4..7`. Partners that are not the
/// first of their ranks among the lane's peers are written by index and number: `<#2+3`. A
/// schedule with scratch has `scratch=` and what each chunk holds. A wait is `wait lane 1 step 4`.
///
/// Fields that a step does not use are not written. So every schedule that verify() accepts is
/// equal after it has been written and read back.
std::string to_text(const Schedule& schedule);
std::string to_text(std::span<const Schedule> schedules);

/// Reads any number of schedules. The error names the line and the field. The schedules are well
/// formed but not verified.
Result<std::vector<Schedule>> schedules_from_text(std::string_view text);

/// Returns the operations of "recv_reduce_send"; -1 if that is no such name. Does not know `final`.
int ops_from_name(std::string_view name) noexcept;
/// Writes one step of `lane`, without the line end.
std::string to_text(const Lane& lane, const Step& step);

} // namespace whorl
