#pragma once

#include <cstdint>
#include <string>

#include "base/membership.h"

namespace whorl {

/// Facts that a file's name may contain about the rank that writes it.
struct FilePatternFacts {
  int rank = 0;
  std::uint32_t process_id = 0;
  std::uint32_t job = 0; ///< number of the communicator: the digits by which whorl-stat calls it
};

/// Returns the name of a file of one rank: in `pattern` %r stands for the rank, %p for the process,
/// %j for the communicator; without %r the rank is added at the end.
std::string expand_file_pattern(const std::string& pattern, const FilePatternFacts& facts);

/// Returns the facts of a rank of the communicator with `identity`.
FilePatternFacts file_pattern_facts(const Identity& identity, int rank, std::uint32_t process_id);

} // namespace whorl
