// Values of options, for pages that list them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace whorl::cli {

/// Returns the values that an option takes if it takes one of a set (CLI::IsMember), with
/// `separator` between them; otherwise nothing.
std::string values_of(const CLI::Option& option, std::string_view separator);

} // namespace whorl::cli
