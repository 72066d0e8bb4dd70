#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace whorl {

/// One line of /proc/self/maps.
struct Mapping {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::string access; ///< "rw-p": readable, writable, executable, private or shared
  std::uint64_t offset = 0;
  std::uint64_t inode = 0;
  std::string path; ///< path of a file, "[heap]", …; may be empty
};

/// Parses one line of /proc/self/maps. Returns false if the line is malformed.
bool parse_mapping(std::string_view line, Mapping* mapping);

/// Returns this process's mappings that overlap [begin, end), ascending and cut to that range; an
/// error if they cannot be read. Mappings that other threads make meanwhile may be missing.
Result<std::vector<Mapping>> mappings_over(std::uintptr_t begin, std::uintptr_t end);

/// Whether mappings, ascending, leave no gap in [begin, end).
bool cover(std::span<const Mapping> mappings, std::uintptr_t begin, std::uintptr_t end) noexcept;

/// Returns the mapping's access as PROT_READ and so on.
int protection_of(const Mapping& mapping) noexcept;

/// Returns whether the mapping is private, writable memory that belongs to no file and is not the
/// main thread's stack, which the kernel must be able to grow.
bool is_plain_memory(const Mapping& mapping);

} // namespace whorl
