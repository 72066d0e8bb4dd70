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
};

} // namespace whorl::cli
