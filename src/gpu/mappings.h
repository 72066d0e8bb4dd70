#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/system.h"

namespace whorl::gpu {

// Memory of CUDA's virtual memory management: physical memory (cuMemCreate) that is mapped to
// reserved addresses (cuMemMap), as in PyTorch's expandable segments and ncclMemAlloc(). Other
// processes map it by a file descriptor for each piece of physical memory. A buffer may lie in
// several mappings that follow each other: a run.

inline constexpr std::size_t kMaxMappings = 4096; ///< largest length of a run

struct MemoryMapping {
  std::uint64_t begin = 0, bytes = 0;
  CUmemGenericAllocationHandle handle = 0; ///< memory, valid while a reference is held
  std::uint64_t end() const noexcept { return begin + bytes; }
  bool operator==(const MemoryMapping&) const = default;
};

/// Returns the mappings in which a buffer lies; empty if it does not lie in mappings, or in too
/// many.
std::vector<MemoryMapping> mappings_of(CUdeviceptr buffer, std::size_t bytes);
/// References to the pieces of physical memory of a run, in the order of addresses.
class PhysicalMemory {
 public:
  struct Part {
    CUmemGenericAllocationHandle handle;
    std::uint64_t bytes; ///< bytes that are mapped, from the begin of the memory on
  };

  PhysicalMemory() = default;
  PhysicalMemory(PhysicalMemory&& other) noexcept { swap(other); }
  PhysicalMemory& operator=(PhysicalMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~PhysicalMemory();

  std::span<const Part> parts() const noexcept { return parts_; }
  /// Returns the bytes of all parts.
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// Takes over a reference.
  void add(Part part);
  /// Adds the memory of another process's descriptor, which may be anything.
  Status import(const Fd& descriptor, std::uint64_t bytes);
  /// Makes a descriptor of a part for other processes.
  Result<Fd> descriptor(std::size_t part) const;

 private:
  void swap(PhysicalMemory& other) noexcept;
  std::vector<Part> parts_;
  std::uint64_t bytes_ = 0;
};

/// Returns whether all parts are memory of the current device that was made to be shared by
/// descriptors.
bool can_be_exported(const PhysicalMemory& physical);
/// Takes references to the memory of whole mappings.
Result<PhysicalMemory> hold_mappings(std::uint64_t begin, std::uint64_t bytes);

/// Physical memory of another process at addresses of this one, one part behind the other.
class MappedMemory {
 public:
  MappedMemory() = default;
  MappedMemory(MappedMemory&& other) noexcept { swap(other); }
  MappedMemory& operator=(MappedMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  /// Unmaps the memory.
  ~MappedMemory();
  /// Maps memory for reading and writing by the current device.
  static Result<MappedMemory> map(const PhysicalMemory& physical);
  CUdeviceptr base() const noexcept { return base_; }

 private:
  Status map_parts(const PhysicalMemory& physical);
  void swap(MappedMemory& other) noexcept;

  CUdeviceptr base_ = 0;
  std::uint64_t reserved_ = 0;       ///< number of reserved bytes; 0: nothing
  std::vector<std::uint64_t> parts_; ///< bytes of the mapped parts
};

} // namespace whorl::gpu
