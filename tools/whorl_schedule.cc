// whorl-schedule: lists, shows, draws and verifies the schedules of the registered algorithms.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "algorithms/algorithm.h"
#include "schedule/draw.h"
#include "schedule/json.h"
#include "schedule/simulate.h"
#include "schedule/text.h"
#include "tools/cli/app.h"
#include "tools/cli/pages.h"
#include "tools/cli/program.h"
#include "tools/schedule/build.h"

namespace whorl::schedule_tool {
namespace {

constexpr int kBadInput = 2, kDefect = 1;

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
} // namespace whorl::schedule_tool

int main(int argc, char** argv) {
  return whorl::cli::run_program("whorl-schedule", whorl::schedule_tool::run, argc, argv);
}
