// whorl-schedule: lists, shows, draws and verifies the schedules of the registered algorithms.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "algorithms/algorithm.h"
#include "base/collective_name.h"
#include "schedule/draw.h"
#include "schedule/json.h"
#include "schedule/simulate.h"
#include "schedule/text.h"
#include "schedule/verify.h"
#include "tools/cli/app.h"
#include "tools/cli/pages.h"
#include "tools/cli/program.h"

namespace whorl {
namespace {

constexpr int kMaxRanks = 4096; // more ranks take minutes and gigabytes
constexpr int kBadInput = 2, kDefect = 1;

struct Arguments {
  std::string collective, algorithm, dims, groups, order, svg, file;
  int nranks = 0, root = 0, channels = 1;
  std::optional<int> rank;
  bool text = false, json = false, in_place = false, published = false, placed = false;
};

Status bad(std::string message) {
  return Status::error(Code::kInvalidArgument, std::move(message));
}

/// Parses dimensions such as "4:twoshot,2:ring", innermost first.
Result<std::vector<Dimension>> parse_dims(std::string_view text) {
  std::vector<Dimension> dims;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    Dimension dim;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), dim.size);
    const std::string_view rest(end, static_cast<std::size_t>(part.data() + part.size() - end));
    if (error != std::errc() || dim.size < 1 || (!rest.empty() && rest.front() != ':')) {
      return bad(fmt::format("--dims: \"{}\" is not a size or size:algorithm.", part));
    }
    if (!rest.empty()) dim.algorithm = rest.substr(1);
    dims.push_back(std::move(dim));
  }
  return dims;
}

/// Parses numbers such as "5,3".
Result<std::vector<int>> parse_numbers(std::string_view option, std::string_view text) {
  std::vector<int> numbers;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    int number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || end != part.data() + part.size()) {
      return bad(fmt::format("{}: \"{}\" is not a number.", option, part));
    }
    numbers.push_back(number);
  }
  return numbers;
}

/// Schedules, and the result of verify() for them.
struct Built {
  CollectiveSpec spec;
  std::string title;
  VerifyReport report;
  Status defect;
  std::vector<Schedule> schedules;
};

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

/// Adds the dimensions to a shape.
Status set_dims(const Arguments& arguments, Collective collective, Shape& shape) {
  auto dims = parse_dims(arguments.dims);
  if (!dims.ok()) return dims.status();
  std::int64_t product = 1;
  for (const Dimension& dim : *dims) {
    product *= dim.size;
    if (product > kMaxRanks) break;
    if (!dim.algorithm.empty() && find_algorithm(collective, dim.algorithm) == nullptr) {
      return bad(fmt::format("--dims: there is no algorithm \"{}\" for {}.", dim.algorithm,
                             arguments.collective));
    }
  }
  if (!dims->empty() && product != shape.nranks) {
    return bad(fmt::format("--dims: the sizes do not multiply to {} ranks.", shape.nranks));
  }
  shape.dims = *std::move(dims);
  return {};
}

/// Adds the sizes of unequal groups to a shape.
Status set_groups(const Arguments& arguments, Shape& shape) {
  auto groups = parse_numbers("--groups", arguments.groups);
  if (!groups.ok()) return groups.status();
  if (!groups->empty() && !shape.dims.empty()) return bad("--groups does not go with --dims.");
  std::int64_t ranks = 0;
  for (const int size : *groups) {
    if (size < 1) return bad(fmt::format("--groups: {} is not a size.", size));
    ranks += size;
  }
  if (!groups->empty() && ranks != shape.nranks) {
    return bad(fmt::format("--groups: the sizes do not add up to {} ranks.", shape.nranks));
  }
  shape.groups = *std::move(groups);
  return {};
}

/// Adds the order of ranks to a shape.
Status set_order(const Arguments& arguments, Shape& shape) {
  auto order = parse_numbers("--order", arguments.order);
  if (!order.ok()) return order.status();
  std::vector<int> sorted = *order;
  std::sort(sorted.begin(), sorted.end());
  bool all = sorted.empty() || static_cast<int>(sorted.size()) == shape.nranks;
  for (std::size_t i = 0; i < sorted.size(); ++i) all = all && sorted[i] == static_cast<int>(i);
  if (!all) {
    return bad(
        fmt::format("--order: each of the ranks 0 to {} must be there once.", shape.nranks - 1));
  }
  shape.order = *std::move(order);
  return {};
}

Result<Shape> shape_of(const Arguments& arguments, Collective collective) {
  Shape shape;
  shape.nranks = arguments.nranks;
  shape.root = arguments.root;
  shape.channels = arguments.channels;
  if (shape.nranks < 1 || shape.nranks > kMaxRanks) {
    return bad(
        fmt::format("The number of ranks must be 1 to {}, not {}.", kMaxRanks, shape.nranks));
  }
  if (shape.root < 0 || shape.root >= shape.nranks) {
    return bad(fmt::format("--root must be 0 to {}, not {}.", shape.nranks - 1, shape.root));
  }
  if (shape.channels < 1 || shape.channels > 64) {
    return bad(fmt::format("--channels must be 1 to 64, not {}.", shape.channels));
  }
  if (arguments.rank && (*arguments.rank < 0 || *arguments.rank >= shape.nranks)) {
    return bad(fmt::format("--rank must be 0 to {}, not {}.", shape.nranks - 1, *arguments.rank));
  }
  WHORL_TRY(set_dims(arguments, collective, shape));
  WHORL_TRY(set_groups(arguments, shape));
  WHORL_TRY(set_order(arguments, shape));
  return shape;
}

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
                           : shape.dims.empty()  ? ""
                                                 : " in these dimensions"));
  }
  built.schedules = build_all(*algorithm, shape);
  prove(built, {.published = arguments.published, .placed = arguments.placed});
  built.title = fmt::format("{} {}, {} rank{}", arguments.collective, arguments.algorithm,
                            shape.nranks, shape.nranks == 1 ? "" : "s");
  if (has_root(built.spec.collective)) built.title += fmt::format(", root {}", shape.root);
  return built;
}

int fail(int code, const std::string& message) {
  fmt::print(stderr, "whorl-schedule: {}\n", message);
  return code;
}

int list() {
  std::string_view previous;
  for (const Algorithm& algorithm : all_algorithms()) {
    const std::string_view collective = name_of(algorithm.collective);
    if (collective != previous) fmt::print("{}{}:", previous.empty() ? "" : "\n", collective);
    fmt::print(" {}", algorithm.name);
    previous = collective;
  }
  fmt::print("\n");
  return 0;
}

/// Proves all forms (in place or not, messages copied or published) and sets the number of slots
/// that suffices for each.
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

int show(const Arguments& arguments, bool svg_wanted) {
  auto built = build(arguments);
  if (!built.ok()) return fail(kBadInput, built.status().message());
  if (built->defect.ok()) prove_all_forms(*built);
  if (!built->defect.ok()) return fail(kDefect, built->defect.message());
  std::span<const Schedule> shown(built->schedules);
  if (arguments.rank) shown = shown.subspan(static_cast<std::size_t>(*arguments.rank), 1);
  if (arguments.json) {
    fmt::print("{}", to_json(shown));
    return 0;
  }
  if (!svg_wanted) fmt::print("{}", to_text(shown));
  if (arguments.text || arguments.rank) return 0;

  const auto simulation = simulate(built->schedules, built->spec);
  if (!simulation.ok()) return fail(kDefect, simulation.status().message());
  const int n = arguments.nranks;
  if (!svg_wanted) {
    if (n <= 16) fmt::print("\n{}", to_table(*simulation, n, built->spec));
    return 0;
  }
  const std::string svg = to_svg(*simulation, n, built->spec, built->title);
  if (arguments.svg.empty()) {
    fmt::print("{}", svg);
    return 0;
  }
  std::ofstream file(arguments.svg);
  file << svg << std::flush;
  if (!file)
    return fail(kBadInput,
                fmt::format("Cannot write to {}: {}.", arguments.svg, std::strerror(errno)));
  return 0;
}

/// Reads the schedules of all ranks from a file, as text or JSON.
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

/// Verifies an algorithm, if one is given with a number of ranks, or the schedules of a file.
int check(const Arguments& arguments, bool algorithm_given) {
  if (arguments.file.empty() && !algorithm_given) {
    return fail(kBadInput, "An algorithm and a number of ranks are required, or --file.");
  }
  if (!arguments.file.empty() && (arguments.channels != 1 || !arguments.dims.empty() ||
                                  !arguments.groups.empty() || !arguments.order.empty())) {
    return fail(kBadInput,
                "--channels, --dims, --groups and --order do not go with --file: the file has "
                "schedules.");
  }
  auto built = arguments.file.empty() ? build(arguments) : read(arguments);
  if (!built.ok()) return fail(kBadInput, built.status().message());
  if (!built->defect.ok()) return fail(kDefect, built->defect.message());
  const VerifyReport& report = built->report;
  fmt::print(
      "{}: correct\nmin_slots        {}\nmessages         {}\nmax_sent_chunks  {} (a block has "
      "{})\n"
      "rounds           {}\n",
      built->title, report.min_slots, report.messages, report.max_sent_chunks,
      built->schedules[0].chunks_per_block, report.rounds);
  return 0;
}

int run(int argc, char** argv) {
  cli::App app("Lists, shows, draws and verifies the schedules of whorl's algorithms.",
               "whorl-schedule");
  app.require_subcommand(1);
  Arguments arguments;
  const auto add_common = [&](CLI::App* command, bool required) {
    command->add_option("collective", arguments.collective, "allreduce, broadcast, ...")
        ->required();
    command->add_option("algorithm", arguments.algorithm, "ring, tree, ...")->required(required);
    command->add_option("ranks", arguments.nranks, "number of ranks")->required(required);
    command->add_option("--root", arguments.root, "root of the collective (0)");
    command->add_option("--channels", arguments.channels, "channels side by side (1)");
    command->add_option("--dims", arguments.dims,
                        "levels of a hierarchy, innermost first: 4:twoshot,2:ring");
    command->add_option("--groups", arguments.groups, "sizes of unequal groups: 5,3");
    command->add_option("--order", arguments.order,
                        "ranks in the order of locality, of which --dims and --groups speak: "
                        "0,2,1,3");
  };
  const CLI::App* const list_command =
      app.add_subcommand("list", "Names all algorithms of all collectives.");
  CLI::App* const show_command = app.add_subcommand("show", "Prints or draws schedules.");
  add_common(show_command, true);
  show_command->add_option("--rank", arguments.rank, "only this rank");
  CLI::Option* const text =
      show_command->add_flag("--text", arguments.text, "text form only, without the table");
  CLI::Option* const json = show_command->add_flag("--json", arguments.json, "as JSON");
  CLI::Option* const svg =
      show_command->add_option("--svg", arguments.svg, "as a picture (to a file, else to stdout)")
          ->expected(0, 1);
  text->excludes(json)->excludes(svg);
  json->excludes(svg);
  CLI::App* const verify_command =
      app.add_subcommand("verify", "Proves a schedule and prints what it costs.");
  add_common(verify_command, false);
  verify_command
      ->add_option("--file", arguments.file,
                   "schedules of all ranks as \"show\" prints them with --text or --json, instead "
                   "of an algorithm and a number of ranks")
      ->excludes("algorithm")
      ->excludes("ranks");
  verify_command->add_flag("--in-place", arguments.in_place, "input and output are in place");
  verify_command->add_flag("--published", arguments.published,
                           "receivers read the memory of the sender");
  verify_command->add_flag("--placed", arguments.placed,
                           "senders write to the memory of the receiver");
  if (const auto page = cli::page_for(app, argc, argv)) {
    fmt::print("{}", *page);
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error); // --help
    if (app.get_subcommands().empty() && error.get_name() == "RequiredError") {
      return fail(kBadInput,
                  "A command is required first: list, show or verify; --help lists them.");
    }
    return fail(kBadInput, app.refusal(error));
  }
  if (*list_command) return list();
  if (*show_command) return show(arguments, svg->count() > 0);
  return check(arguments,
               verify_command->count("algorithm") > 0 && verify_command->count("ranks") > 0);
}

} // namespace
} // namespace whorl

int main(int argc, char** argv) {
  return whorl::cli::run_program("whorl-schedule", whorl::run, argc, argv);
}
