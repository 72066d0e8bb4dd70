// whorl-info: says what whorl would do here and why: launcher, transports, addresses, variables.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "tools/cli/app.h"
#include "tools/cli/pages.h"
#include "tools/cli/program.h"
#include "tools/info/facts.h"

namespace {

int run(int argc, char** argv) {
  bool json = false;
  whorl::cli::App app(
      "Says what whorl would do here and why: the launcher, the transport between two ranks of a "
      "process, of a host and on two hosts, the interface and address that other hosts use, and "
      "the variables in force. Nothing is connected.",
      "whorl-info");
  app.add_flag("--json", json, "Print JSON, for programs");
  app.footer(
      "Exit status: 0; 1 if variables of the launcher or of whorl let no communicator be made. "
      "WHORL_SECRET_FILE is not read, and WHORL_PROFILER_PLUGIN not loaded.");
  if (const auto status = whorl::cli::parse(app, argc, argv)) return *status;
  const auto facts = whorl::info::collect();
  fmt::print("{}", json ? whorl::info::to_json(facts) : whorl::info::to_text(facts));
  return facts.contains("settings") || facts["launcher"].contains("error") ? 1 : 0;
}

} // namespace

int main(int argc, char** argv) { return whorl::cli::run_program("whorl-info", run, argc, argv); }
