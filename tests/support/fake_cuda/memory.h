#pragma once

// Memory of the pretended devices. Device memory consists of blocks, each with a file behind it:
// small allocations share blocks of 2 MiB, a large one has a block of its own. A block goes when
// its last allocation is freed.

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace fake_cuda {

/// Registry of the memory that the driver knows, by the program's address.
class Memory {
 public:
  struct Range {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    std::byte* alias = nullptr; ///< address of the same bytes for the driver
    unsigned type = 0;          ///< CUmemorytype
    bool managed = false;
    int device = 0;
    unsigned long long id = 0;   ///< id of an allocation of device memory, never reused
    std::uintptr_t block = 0;    ///< begin of the block of device memory; 0: none
    bool shareable = false;      ///< true if an IPC handle may be made
    bool pool = false;           ///< true if the memory belongs to no context
    bool registered = false;     ///< true for the program's own memory, registered
    std::uintptr_t reserved = 0; ///< begin of the reservation of a mapping
    std::size_t reservation = 0; ///< bytes of that reservation; 0: no mapping
  };
  /// Block of device memory, as other processes get to know it.
  struct Block {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    int device = 0;
    int fd = -1;               ///< file behind the block
    unsigned long long id = 0; ///< id that is never reused
  };

  static Memory& all();
  /// Allocates device memory; with `pool` as cuMemAllocAsync() does.
  CUresult allocate_device(std::size_t bytes, bool pool, int device, CUdeviceptr* address);
  /// Returns the block of device memory of a range.
  Block block_of(const Range& range);
  /// Maps a block of another process, unless that process has freed it.
  CUresult open_device(int process, const Block& block, CUdeviceptr* address);
  CUresult free_device(CUdeviceptr address);
  CUresult allocate_host(std::size_t bytes, bool managed, void** address);
  CUresult free_host(void* address);
  CUresult add_host(void* address, std::size_t bytes);
  CUresult remove_host(void* address);
  void add_mapping(const Range& range);
  void remove_mapping(std::uintptr_t begin);
  /// Forgets all memory of a device, whose context has been reset.
  void forget(int device);
  /// Returns the range that holds `address`; bytes = 0 if there is none.
  Range find(std::uintptr_t address);
  /// Returns the address at which the driver reaches `address`; unknown addresses are ordinary
  /// memory.
  template <class T>
  T* reach(T* address) {
    return reinterpret_cast<T*>(reach(reinterpret_cast<std::uintptr_t>(address)));
  }
  std::byte* reach(std::uintptr_t address);

 private:
  /// Block of this process, with the allocations in it.
  struct OwnBlock {
    Block block;
    std::byte* alias = nullptr;
    bool shared = false;                       ///< true: a block of small allocations
    std::map<std::size_t, std::size_t> used{}; ///< bytes of allocations, by their offset
  };
  static std::string name_of(unsigned long long id);
  // The caller of the following functions holds the mutex.
  OwnBlock* make_block(int fd, std::size_t bytes, int device);
  CUresult place(OwnBlock& block, std::size_t offset, Range range, CUdeviceptr* address);
  static std::size_t room_in(const OwnBlock& block, std::size_t bytes);
  void unmap(const Range& range);

  // Functions that take the mutex:
  void insert(Range range);
  bool free_range(std::uintptr_t begin);

  std::mutex mutex_;
  std::map<std::uintptr_t, Range> ranges_;    ///< ranges by their begin
  std::map<std::uintptr_t, OwnBlock> blocks_; ///< blocks by their begin
};

} // namespace fake_cuda
