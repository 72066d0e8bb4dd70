#pragma once

// Kernel that has been read from PTX.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/ptx/instruction.h"

namespace whorl::test::ptx {

struct Kernel {
  std::string name;
  std::size_t parameter_bytes = 0;      ///< size of its only parameter
  std::size_t shared_bytes = 0;         ///< size of the memory that the threads of a block share
  std::size_t slots = 0;                ///< number of slots of a thread
  std::vector<std::uint64_t> constants; ///< values of slots kFirstConstant, …
  std::vector<Instruction> code;
  std::string text; ///< the kernel's lines, for messages

  /// Returns a line of the text, from 1.
  std::string line(std::uint32_t number) const;
};

/// Reads the kernel of this name from PTX. Throws Error, naming the line and the instruction, if it
/// is not there or has an instruction that is not known.
Kernel read_kernel(std::string_view ptx, std::string_view name);

} // namespace whorl::test::ptx
