// Command line of a program of whorl.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>

#include "whorl/whorl.h"

namespace whorl::cli {

/// Returns the release of whorl that a program belongs to: "0.1.0".
inline std::string release() {
  return std::to_string(WHORL_RELEASE_MAJOR) + "." + std::to_string(WHORL_RELEASE_MINOR) + "." +
         std::to_string(WHORL_RELEASE_PATCH);
}

/// Command line with the options that every program has: --help and --version.
class App : public CLI::App {
 public:
  App(std::string description, const std::string& name) : CLI::App(std::move(description), name) {
    set_version_flag("--version", name + " " + release(), "Print the version and exit");
  }

  /// Returns the sentence that refuses a command line, without the program's name.
  std::string refusal(const CLI::ParseError& error) const {
    std::string sentence = error.what();
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) { // CLI11 names them backwards
      sentence = "there is no option or argument " + CLI::detail::join(remaining(true), " ");
    }
    return sentence + " (" + get_name() + " --help lists the options)";
  }
};

} // namespace whorl::cli
