#include "topology/text_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

namespace whorl::topology {
namespace {

/// Returns the number that `text` begins with behind blanks, or `none`.
template <typename Number>
Number leading(std::string_view text, Number none) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\n"), text.size()));
  Number value = none;
  const auto [rest, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  return wrong == std::errc() ? value : none;
}

} // namespace

double leading_number(std::string_view text, double none) { return leading(text, none); }

int leading_count(std::string_view text) { return std::max(leading(text, -1), -1); }

Result<std::string> read_text_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text;
  constexpr std::size_t kChunk = 1U << 16;
  while (stream && text.size() <= kMaxFileBytes) {
    const std::size_t before = text.size();
    text.resize(before + kChunk);
    stream.read(text.data() + before, kChunk);
    text.resize(before + static_cast<std::size_t>(stream.gcount()));
  }
  if (text.empty()) {
    return Status::error(Code::kSystemError,
                         fmt::format("{}: {}", path,
                                     stream.is_open() ? "the file is empty or cannot be read"
                                                      : std::strerror(errno)));
  }
  WHORL_TRY(check_size(path, text.size()));
  return text;
}

Status check_size(const std::string& name, std::size_t bytes) {
  if (bytes <= kMaxFileBytes) return {};
  return Status::error(Code::kInvalidArgument,
                       fmt::format("{}: the file is too large for a topology; {} MiB are read",
                                   name, kMaxFileBytes >> 20U));
}

std::string first_line(const std::filesystem::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

double first_number(const std::filesystem::path& path, double none) {
  return leading_number(first_line(path), none);
}

} // namespace whorl::topology
