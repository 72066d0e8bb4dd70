#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

/// Reads an input and requires what must hold of whatever the input describes. Each target defines
/// this function: libFuzzer calls it, or driver.cc.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace whorl::fuzz {

/// Ends the process with a message unless `holds`.
inline void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "wrong: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

} // namespace whorl::fuzz
