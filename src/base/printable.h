#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace whorl {

/// Returns whether a character would control a terminal.
inline bool is_control(char c) noexcept { return static_cast<unsigned char>(c) < 32 || c == 127; }

/// Returns a text of another process as it may be printed: with spaces for control characters.
inline std::string printable(std::string_view text) {
  std::string clean(text);
  std::replace_if(clean.begin(), clean.end(), is_control, ' ');
  return clean;
}

} // namespace whorl
