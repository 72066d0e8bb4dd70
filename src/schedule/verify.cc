#include "schedule/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "schedule/check.h"
#include "schedule/machine.h"
#include "schedule/symbolic.h"

namespace whorl {
namespace {

constexpr int kMaxLanesNamed = 8; // limit for the description of a deadlock
constexpr int kMaxSlots = 255;    // largest value of Schedule::min_slots

Status wrong(std::string message) {
  return Status::error(Code::kInternalError, std::move(message));
}

} // namespace

Result<VerifyReport> verify(std::span<const Schedule> schedules, const CollectiveSpec& spec,
                            const VerifyOptions& options) {
  WHORL_TRY(check_fields(schedules, spec));
  const int windows = std::max(options.windows, 1);
  const ChunkLayout layout(schedules, spec, windows);
  Machine machine(schedules, &layout);

  // Neither the data nor the unreceived messages depend on the slots, so the run that checks the
  // data has unlimited slots, unless a number is given.
  SymbolicData data(schedules, machine, layout, spec,
                    {.windows = windows, .published = options.published, .placed = options.placed});
  MachineOptions run{.windows = windows, .published = options.published};
  if (options.slots > 0) run.slots = options.slots;
  switch (machine.run(run, &data)) {
    case Machine::End::kStopped:
      return wrong(data.error());
    case Machine::End::kDeadlock:
      return wrong("Deadlock: " + machine.describe_deadlock(kMaxLanesNamed));
    case Machine::End::kFinished:
      break;
  }
  if (std::string error = data.check_result(); !error.empty()) return wrong(std::move(error));

  VerifyReport report;
  report.messages = data.message_count();
  report.max_sent_chunks = data.max_sent_chunks();
  report.rounds = data.rounds();
  for (run.slots = 1; machine.run(run, nullptr) != Machine::End::kFinished; ++run.slots) {
    if (run.slots == kMaxSlots) {
      return wrong(fmt::format("More than {} slots are needed: {}", kMaxSlots,
                               machine.describe_deadlock(kMaxLanesNamed)));
    }
  }
  report.min_slots = run.slots;
  return report;
}

} // namespace whorl
