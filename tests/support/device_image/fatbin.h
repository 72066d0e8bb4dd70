#pragma once

// Reader of what nvcc writes with -fatbin: one file with PTX and machine code for several
// architectures. NVIDIA does not document the format; the fields that are read here were found by
// comparison with the options of nvcc.

#include <string>
#include <vector>

namespace whorl::test {

/// Code of a fatbin in one form.
struct DeviceCode {
  enum class Kind { kPtx = 1, kMachineCode = 2 };
  Kind kind;
  unsigned architecture; ///< 80 for compute_80 or sm_80
  std::string bytes;     ///< text of PTX, or an ELF file
};

/// Returns whether this build can decompress, so that read_fatbin() can read what nvcc compresses.
bool can_decompress();
/// Returns the codes of a fatbin in the order of the file. Throws std::runtime_error if the bytes
/// are no fatbin, or compressed and this build cannot decompress.
std::vector<DeviceCode> read_fatbin(const void* fatbin);
/// Returns the first PTX of a fatbin for at most `architecture`; throws if there is none.
std::string ptx_of(const void* fatbin, unsigned architecture = 80);

} // namespace whorl::test
