#include "tools/schedule/build.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "algorithms/algorithm.h"
#include "base/collective_name.h"
#include "schedule/json.h"
#include "schedule/text.h"

namespace whorl::schedule_tool {
namespace {

/// Returns the specification of what the schedules should do, as far as the arguments give it.
Result<CollectiveSpec> spec_of(const Arguments& arguments) {
  CollectiveSpec spec{.root = arguments.root, .in_place = arguments.in_place};
  const auto named = find_collective(arguments.collective);
  if (!named) {
    std::vector<std::string_view> names;
    for (int c = 0; c < kNumCollectives; ++c) names.push_back(name_of(static_cast<Collective>(c)));
    return bad(fmt::format("There is no collective \"{}\"; there are {}.", arguments.collective,
                           fmt::join(names, ", ")));
  }
  spec.collective = *named;
  return spec;
}

/// Proves the schedules and sets in each the number of slots that they need.
void prove(Built& built, const VerifyOptions& options) {
  const auto report = verify(built.schedules, built.spec, options);
  if (!report.ok()) {
    built.defect = report.status();
    return;
  }
  built.report = *report;
  for (Schedule& schedule : built.schedules) {
    schedule.min_slots = static_cast<std::uint8_t>(report->min_slots);
  }
}

} // namespace

Result<Built> build(const Arguments& arguments) {
  Built built;
  const auto spec = spec_of(arguments);
  if (!spec.ok()) return spec.status();
  built.spec = *spec;
  const Algorithm* const algorithm = find_algorithm(built.spec.collective, arguments.algorithm);
  if (algorithm == nullptr) {
    return bad(
        fmt::format("There is no algorithm \"{}\" for {}; \"whorl-schedule list\" shows all.",
                    arguments.algorithm, arguments.collective));
  }
  const auto made = shape_of(arguments, built.spec.collective);
  if (!made.ok()) return made.status();
  const Shape& shape = *made;
  if (!algorithm->supports(shape)) {
    return bad(fmt::format("{} {} does not support {} ranks{}.", arguments.collective,
                           arguments.algorithm, shape.nranks,
                           !shape.groups.empty() ? " in these groups"
                           : !shape.dims.empty() ? " in these dimensions"
                           : shape.nranks > 1 && (arguments.algorithm == "hierarchical" ||
                                                  arguments.algorithm == "leaders")
                               ? " without --dims or --groups"
                               : ""));
  }
  built.schedules = build_all(*algorithm, shape);
  prove(built, {.published = arguments.published, .placed = arguments.placed});
  built.title = fmt::format("{} {}, {} rank{}", arguments.collective, arguments.algorithm,
                            shape.nranks, shape.nranks == 1 ? "" : "s");
  if (has_root(built.spec.collective)) built.title += fmt::format(", root {}", shape.root);
  return built;
}

Result<Built> read(const Arguments& arguments) {
  Built built;
  const auto spec = spec_of(arguments);
  if (!spec.ok()) return spec.status();
  built.spec = *spec;
  std::ifstream file(arguments.file);
  std::string text;
  for (char c = 0; file.get(c);) text += c;
  if (!file.is_open() || file.bad()) {
    return bad(fmt::format("Cannot read {}: {}.", arguments.file, std::strerror(errno)));
  }
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && text[first] == '[';
  auto schedules = json ? schedules_from_json(text) : schedules_from_text(text);
  if (!schedules.ok()) return schedules.status().with_context(arguments.file);
  built.schedules = *std::move(schedules);
  if (built.schedules.size() > kMaxRanks) {
    return bad(fmt::format("{} has {} schedules; more than {} are not verified.", arguments.file,
                           built.schedules.size(), kMaxRanks));
  }
  std::vector<int> stated;
  for (const Schedule& schedule : built.schedules) stated.push_back(schedule.min_slots);
  prove(built, {.published = arguments.published, .placed = arguments.placed});
  built.title =
      fmt::format("{}: {}, {} ranks", arguments.file, arguments.collective, built.schedules.size());
  if (!built.defect.ok()) return built;
  for (std::size_t rank = 0; rank < stated.size(); ++rank) {
    if (stated[rank] >= built.report.min_slots) continue;
    built.defect = Status::error(
        Code::kInternalError,
        fmt::format("Rank {} has min_slots={} (1 where it is left out), and {} are needed.", rank,
                    stated[rank], built.report.min_slots));
    break;
  }
  return built;
}

void prove_all_forms(Built& built) {
  int most = built.report.min_slots;
  for (const bool in_place : {false, true}) {
    if (in_place && !has_in_place_form(built.spec.collective)) continue;
    built.spec.in_place = in_place;
    prove(built, {.published = true});
    if (!built.defect.ok()) return;
    most = std::max(most, built.report.min_slots);
  }
  built.spec.in_place = false;
  for (Schedule& schedule : built.schedules) schedule.min_slots = static_cast<std::uint8_t>(most);
}

} // namespace whorl::schedule_tool
