// Schedules as text and as JSON.
#include "input.h"
#include "schedule/json.h"
#include "schedule/text.h"
#include "schedule/verify.h"
#include "target.h"
#include "tests/unit/schedule/handmade.h"

namespace whorl::fuzz {
namespace {

/// Requires that schedules are proved or refused, and, if proved, that both forms keep them.
void check_schedules(const std::vector<Schedule>& schedules) {
  constexpr std::size_t kFewRanks = 9, kFewSteps = 64, kFewRepeats = 64;
  std::size_t steps = 0;
  bool few = schedules.size() <= kFewRanks;
  for (const Schedule& schedule : schedules) {
    few &= schedule.nranks <= static_cast<int>(kFewRanks) &&
           schedule.chunks_per_block <= kFewSteps && schedule.input_chunks <= 4 * kFewSteps &&
           schedule.output_chunks <= 4 * kFewSteps && schedule.scratch.size() <= kFewSteps;
    for (const Lane& lane : schedule.lanes) {
      steps += lane.steps.size();
      for (const Step& step : lane.steps) few &= step.repeat <= kFewRepeats;
    }
  }
  if (!few || steps > kFewSteps * kFewRanks) return; // a proof takes as long as they run
  const auto proved = verify(schedules, {.collective = Collective::kAllReduce});
  if (!proved.ok()) return require_error(proved.status());
  const auto again = schedules_from_text(to_text(schedules));
  require(again.ok() && *again == schedules, "text keeps what is proved");
}

} // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const int n : {2, 3}) {
    for (const handmade::Named& named : handmade::all(n)) {
      all.push_back(to_text(named.schedules));
      if (n == 2) all.push_back(to_json(named.schedules));
    }
  }
  return all;
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl;
  using namespace whorl::fuzz;
  const std::string_view text = Input(data, size).text();
  if (const auto read = schedules_from_text(text); read.ok()) {
    check_schedules(*read);
  } else {
    require_error(read.status());
  }
  if (const auto read = schedules_from_json(text); read.ok()) {
    const auto again = schedules_from_json(to_json(*read));
    require(again.ok() && *again == *read, "JSON keeps schedules");
    check_schedules(*read);
  } else {
    require_error(read.status());
  }
  return 0;
}
