#include "machine.h"
#include "target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  whorl::fuzz::check_form(data, size, whorl::topology::Source::kHwloc);
  return 0;
}
