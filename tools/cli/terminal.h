// Terminal that a program may write to.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace whorl::cli {

/// Returns whether the descriptor is a terminal that can clear what it shows: no file, no pipe, and
/// no terminal that TERM calls dumb.
inline bool can_clear(int descriptor) {
  const char* const kind = std::getenv("TERM");
  return isatty(descriptor) != 0 && kind != nullptr && std::string_view(kind) != "dumb";
}

} // namespace whorl::cli
