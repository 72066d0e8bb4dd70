#pragma once

// Reader of machine code for devices (SASS) from sm_70 on: which kernels an ELF file has, with what
// parameters and memory, and the few instructions that tests look for. The encodings were compared
// with those that nvdisasm prints.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace whorl::test {

/// Facts of one kernel's machine code.
struct KernelFacts {
  std::size_t parameter_bytes = 0;
  std::size_t stack_bytes = 0; ///< size of local memory, which is device memory
  int wide_loads = 0;          ///< number of loads of 16 bytes from global memory
  int wide_stores = 0;         ///< number of stores of 16 bytes to global memory
  int loads_in_flight = 0;     ///< largest number of wide loads before the first is used
  int fences = 0;              ///< number of fences of memory (MEMBAR)
};

/// Returns the kernels of an ELF file for devices by their names.
std::map<std::string, KernelFacts> read_machine_code(const std::string& elf);

} // namespace whorl::test
