// whorl-stat: shows what the ranks of this machine are doing, whom they wait for, and why.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "monitor/snapshot.h"
#include "tools/cli/app.h"
#include "tools/cli/pages.h"
#include "tools/cli/program.h"
#include "tools/cli/terminal.h"
#include "tools/stat/processes.h"
#include "tools/stat/skew.h"
#include "tools/stat/table.h"
#include "tools/stat/why.h"

namespace whorl::stat {
namespace {

enum Exit : int { kNothing = 0, kFound = 1, kFailed = 2 };

constexpr int kMaxPid = 1 << 22; // limit of Linux

struct Arguments {
  std::vector<int> pids;
  bool why = false, skew = false, json = false;
  double watch_s = 0; ///< time between two tables; 0: one table
};

std::string to_json(std::vector<Rank> ranks) {
  std::string text = "[";
  for (Rank& rank : ranks) {
    rank.page.process_id = static_cast<std::uint32_t>(rank.pid); // in the reader's namespace
    text += fmt::format("{}{}", text.size() > 1 ? ",\n" : "\n", monitor::to_json(rank.page));
  }
  return text + "\n]\n";
}

void say_where(const Found& found) {
  if (found.unreadable == 0) return;
  fmt::print(stderr, "note: {} processes may not be read; only their users and root may\n",
             found.unreadable);
}

/// Prints one answer. Returns the exit status.
int answer(const Arguments& arguments, bool first) {
  const auto found = find_ranks(arguments.pids);
  if (!found.ok()) {
    fmt::print(stderr, "whorl-stat: {}\n", found.status().message());
    return kFailed;
  }
  if (found->ranks.empty()) {
    const std::string where =
        arguments.pids.empty()
            ? "any process"
            : fmt::format("process {}; its children may have some, and without a pid all are shown",
                          fmt::join(arguments.pids, ", "));
    fmt::print(stderr, "whorl-stat: there is no communicator in {}\n", where);
    if (first) say_where(*found);
    return kFailed;
  }
  if (arguments.json) {
    fmt::print("{}", to_json(found->ranks));
    return kNothing;
  }
  if (arguments.skew) {
    fmt::print("{}", to_skew_table(found->ranks));
    return kNothing;
  }
  if (!arguments.why) {
    fmt::print("{}", to_table(found->ranks));
    return kNothing;
  }
  const auto sentences = find_culprits(found->ranks);
  for (const std::string& sentence : sentences) fmt::print("{}\n", sentence);
  if (sentences.empty()) fmt::print("No rank waits for long.\n");
  return sentences.empty() ? kNothing : kFound;
}

int run(int argc, char** argv) {
  Arguments arguments;
  cli::App app(
      "Shows what the ranks of this machine do, whom they wait for, and why. Works on "
      "processes that hang or are stopped; sees those of this user, and root sees all.",
      "whorl-stat");
  app.add_option("pid", arguments.pids, "Processes; none: all of this machine")
      ->check(CLI::Range(1, kMaxPid));
  auto* const why =
      app.add_flag("--why", arguments.why, "Name the ranks for which others wait, and the reason");
  auto* const skew = app.add_flag("--skew", arguments.skew,
                                  "Compare when ranks began the last collectives: stragglers");
  auto* const json =
      app.add_flag("--json", arguments.json, "Print everything, with the last operations, as JSON");
  app.add_option("--watch", arguments.watch_s, "Repeat after this many seconds, 1 by default")
      ->expected(0, 1)
      ->default_str("1")
      ->check(CLI::Range(0.1, 3600.0));
  app.footer(
      "Exit status: 0; 1 if --why finds a rank for which others wait; 2 if there is no "
      "communicator, or something goes wrong.");
  why->excludes(skew)->excludes(json);
  skew->excludes(json);
  if (const auto over = cli::parse(app, argc, argv)) return *over;
  int status = answer(arguments, true);
  while (arguments.watch_s > 0 && status != kFailed && std::fflush(stdout) == 0) {
    const auto whole = static_cast<time_t>(arguments.watch_s);
    const timespec pause{whole,
                         static_cast<long>((arguments.watch_s - static_cast<double>(whole)) * 1e9)};
    ::nanosleep(&pause, nullptr);
    fmt::print("{}", cli::can_clear(STDOUT_FILENO) ? "\x1b[H\x1b[2J" : "\n");
    status = answer(arguments, false);
  }
  return status;
}

} // namespace
} // namespace whorl::stat

int main(int argc, char** argv) {
  return whorl::cli::run_program("whorl-stat", whorl::stat::run, argc, argv);
}
