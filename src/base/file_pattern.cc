#include "base/file_pattern.h"

#include <fmt/format.h>

#include <cstddef>

namespace whorl {

std::string expand_file_pattern(const std::string& pattern, const FilePatternFacts& facts) {
  std::string path;
  bool ranked = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'r') path += std::to_string(facts.rank);
    if (next == 'p') path += std::to_string(facts.process_id);
    if (next == 'j') path += fmt::format("{:08x}", facts.job);
    ranked = ranked || next == 'r';
    if (next == 'r' || next == 'p' || next == 'j') {
      ++i;
    } else {
      path += pattern[i];
    }
  }
  return ranked ? path : fmt::format("{}.{}", path, facts.rank);
}

FilePatternFacts file_pattern_facts(const Identity& identity, int rank, std::uint32_t process_id) {
  FilePatternFacts facts{.rank = rank, .process_id = process_id};
  for (std::size_t i = 0; i < sizeof facts.job; ++i) {
    facts.job = facts.job << 8 | std::to_integer<std::uint32_t>(identity.job[i]);
  }
  return facts;
}

} // namespace whorl
