#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "base/status.h"

/// Reads an input and requires what must hold of whatever the input describes. Each target defines
/// this function: libFuzzer calls it, or driver.cc.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace whorl::fuzz {

/// Returns valid inputs, made by encoding, from which changes start. Each target defines this
/// function; it returns nothing where the inputs are files.
std::vector<std::string> seeds();

/// Ends the process with a message unless `holds`.
inline void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "wrong: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

/// Requires an error that may be shown: a sentence without characters that control a terminal.
inline void require_error(const Status& status) {
  const std::string& text = status.message();
  require(!status.ok() && !text.empty(), "an error says why");
  require(std::none_of(text.begin(), text.end(), is_control), "printable: " + printable(text));
}

} // namespace whorl::fuzz
