#include "memory/memory_map.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

namespace whorl {
namespace {

/// Takes the number at the front of `text` and the character after it, which must be `end`.
template <class T>
bool take_number(std::string_view& text, T* value, int base, char end) {
  const auto [after, error] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(after - text.data()));
  if (text.empty()) return end == ' ';
  if (text.front() != end) return false;
  text.remove_prefix(1);
  return true;
}

} // namespace

bool parse_mapping(std::string_view line, Mapping* mapping) {
  // begin-end access offset major:minor inode      path
  if (!take_number(line, &mapping->begin, 16, '-') || !take_number(line, &mapping->end, 16, ' ')) {
    return false;
  }
  if (line.size() < 5 || line[4] != ' ') return false;
  mapping->access = line.substr(0, 4);
  line.remove_prefix(5);
  unsigned major = 0;
  unsigned minor = 0;
  if (!take_number(line, &mapping->offset, 16, ' ') || !take_number(line, &major, 16, ':') ||
      !take_number(line, &minor, 16, ' ') || !take_number(line, &mapping->inode, 10, ' ')) {
    return false;
  }
  const std::size_t path = line.find_first_not_of(' ');
  mapping->path = path == std::string_view::npos ? std::string_view() : line.substr(path);
  return mapping->begin < mapping->end;
}

Result<std::vector<Mapping>> mappings_over(std::uintptr_t begin, std::uintptr_t end) {
  std::vector<Mapping> found;
  std::ifstream maps("/proc/self/maps");
  const auto failed = [] {
    return Status::error(Code::kSystemError,
                         fmt::format("cannot read /proc/self/maps: {}", std::strerror(errno)));
  };
  if (!maps) return failed();
  for (std::string line; std::getline(maps, line);) {
    Mapping mapping;
    if (!parse_mapping(line, &mapping) || mapping.end <= begin) continue;
    if (mapping.begin >= end) break;
    if (mapping.begin < begin) {
      mapping.offset += begin - mapping.begin;
      mapping.begin = begin;
    }
    mapping.end = std::min(mapping.end, end);
    found.push_back(std::move(mapping));
  }
  if (maps.bad()) return failed(); // not the end of the file
  return found;
}

bool cover(std::span<const Mapping> mappings, std::uintptr_t begin, std::uintptr_t end) noexcept {
  for (const Mapping& mapping : mappings) {
    if (mapping.begin > begin) return false;
    begin = std::max(begin, mapping.end);
  }
  return begin >= end;
}

int protection_of(const Mapping& mapping) noexcept {
  return (mapping.access[0] == 'r' ? PROT_READ : 0) | (mapping.access[1] == 'w' ? PROT_WRITE : 0) |
         (mapping.access[2] == 'x' ? PROT_EXEC : 0);
}

bool is_plain_memory(const Mapping& mapping) {
  return mapping.access == "rw-p" && mapping.inode == 0 &&
         (mapping.path.empty() || mapping.path == "[heap]" || mapping.path.starts_with("[anon:"));
}

} // namespace whorl
