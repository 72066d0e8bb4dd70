// What is installed beside a program, from the options that it parses: a manual page and bash
// completion.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "tools/cli/app.h"

namespace whorl::cli {

/// Returns the manual page of a program, as roff source: the texts of its --help.
std::string to_man_page(const CLI::App& app);

/// Returns a bash script that completes the command line of a program: names of its subcommands and
/// options, values where an option takes one of a set, and files elsewhere.
std::string to_bash_completion(const CLI::App& app);

/// Returns the page for which `--generate man` or `--generate bash` asks; nothing for any other
/// command line. Only the build asks so, therefore --help does not show the option.
std::optional<std::string> page_for(const CLI::App& app, int argc, const char* const* argv);

/// Parses a command line. Returns the exit status if the program is over: 0 after a page of
/// page_for(), the help or the version, which have been printed; 2 after wrong arguments, with a
/// sentence on stderr.
std::optional<int> parse(App& app, int argc, char** argv);

} // namespace whorl::cli
