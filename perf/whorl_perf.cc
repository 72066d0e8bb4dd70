// whorl-perf: starts the perf program of a collective, which is installed in a folder that is in no
// PATH, so that its name is not in the way of nccl-tests.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include "perf/common/flags.h"
#include "tools/cli/app.h"
#include "tools/cli/pages.h"
#include "tools/cli/program.h"

namespace {

constexpr std::string_view kSuffix = "_perf";

/// Returns the folder of the programs: that of the build beside this program, or that of the
/// installation.
std::filesystem::path find_programs() {
  std::error_code error;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  return std::filesystem::exists(here / "all_reduce_perf", error) ? here
                                                                  : here / WHORL_PERF_PROGRAMS;
}

/// Returns the collectives that there are programs for.
std::set<std::string> collectives() {
  std::set<std::string> names;
  std::string_view all = WHORL_PERF_COLLECTIVES;
  while (!all.empty()) {
    const auto end = std::min(all.find(' '), all.size());
    names.emplace(all.substr(0, end));
    all.remove_prefix(std::min(end + 1, all.size()));
  }
  return names;
}

/// Returns the collective of `names` that a word names; empty if there is none. Underscores do not
/// matter, so that "allreduce", as other programs of whorl spell it, is found, too.
std::string find(const std::set<std::string>& names, const std::string& word) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return CLI::ignore_underscore(name) == CLI::ignore_underscore(word);
  });
  return found == names.end() ? std::string() : *found;
}

/// Becomes the program of a collective. Returns only if that fails.
int start(const std::string& collective, char** argv) {
  const std::string program = find_programs() / (collective + std::string(kSuffix));
  ::execv(program.c_str(), argv);
  std::fprintf(stderr, "whorl-perf: cannot start %s: %s.\n", program.c_str(), std::strerror(errno));
  return 2;
}

int run(int argc, char** argv) {
  const auto names = collectives();
  if (std::string named = argc > 1 ? find(names, argv[1]) : ""; !named.empty()) {
    argv[1] = named.data();
    return start(named, argv + 1);
  }
  whorl::cli::App app(perf::kDescription, "whorl-perf");
  std::string collective;
  app.add_option("collective", collective, "Collective to measure")
      ->required()
      ->check(CLI::IsMember(names, CLI::ignore_underscore));
  perf::Options options;
  perf::Flags flags;
  perf::add_flags(app, options, flags, {.workloads = true, .uneven = true});
  app.footer(
      "Flags follow the collective, and are those of nccl-tests. --workload is for all_reduce, "
      "--skew for "
      "collectives whose name ends in v.");
  if (const auto status = whorl::cli::parse(app, argc, argv)) return *status;
  std::fputs("whorl-perf: the collective must be the first argument.\n", stderr);
  return 2;
}

} // namespace

int main(int argc, char** argv) { return whorl::cli::run_program("whorl-perf", run, argc, argv); }
