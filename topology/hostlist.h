#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace whorl::topology {

/// Returns the names of a list in Slurm's notation, such as "rack[1-3,7]node[01-16],login", in the
/// order of the list. The error says what is wrong with the list, or that it has more than `most`
/// names.
Result<std::vector<std::string>> expand_hostlist(std::string_view list, std::size_t most);

/// Returns names as a list with ranges, in natural order: "n[01-03,7],login".
std::string to_hostlist(std::vector<std::string> names);

/// Returns an error unless `name` can be that of a host or switch: 1 to 128 characters without
/// blanks, brackets, quotes, commas and control characters.
Status check_name(std::string_view name);

/// Compares names so that numbers in them count as numbers: "leaf2" is less than "leaf10". Only
/// equal names compare as equal.
bool natural_less(std::string_view a, std::string_view b);

} // namespace whorl::topology
