#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"

namespace whorl::gpu {

/// A buffer in device memory and how another process gets at it.
struct SharedMemory {
  std::uint64_t address = 0, bytes = 0;        ///< of the buffer, in its process
  std::uint64_t allocation = 0, allocated = 0; ///< begin and bytes of what it is part of
  std::uint64_t id = 0;                        ///< of the allocation: never used again there
  std::array<std::byte, sizeof(CUipcMemHandle)> handle{}; ///< of the allocation

  /// Whether what another process says of a buffer makes sense.
  bool valid(std::uint64_t expected_bytes) const noexcept {
    return bytes == expected_bytes && address >= allocation && address - allocation <= allocated &&
           bytes <= allocated - (address - allocation);
  }
};

/// Gives this process's allocations to others. One thread at a time.
class MemoryExports {
 public:
  /// Keeps as many handles; among them may be those of freed allocations.
  explicit MemoryExports(std::size_t most_known = 1024) : most_known_(most_known) {}
  std::size_t known() const noexcept { return known_.size(); } ///< handles that are kept
  /// Nothing for memory that cannot be shared this way (of a pool, of a mapping, managed). The
  /// context of the memory is current.
  std::optional<SharedMemory> find(const void* buffer, std::size_t bytes);

 private:
  struct Export {
    std::uint64_t id;
    std::array<std::byte, sizeof(CUipcMemHandle)> handle;
  };
  std::size_t most_known_;
  std::map<std::uint64_t, Export> known_; ///< by where the allocation begins
};

/// The driver has small allocations in blocks of 2 MiB and maps whole blocks.
inline constexpr std::uint64_t kDriverBlock = std::uint64_t{2} << 20;

/// Allocations of other processes that are mapped in this one, each as long as it is among the last
/// kMostMapped that its rank has used. A freed allocation stays in the device's memory until then.
/// What is mapped depends on the calls alone, so it is alike on all ranks that make the same ones.
/// One thread at a time.
class MemoryImports {
 public:
  static constexpr std::size_t kMostMapped = 64;

  explicit MemoryImports(CUcontext context) : context_(context) {}
  /// No kernel uses the memory any more.
  ~MemoryImports();
  MemoryImports(const MemoryImports&) = delete;
  MemoryImports& operator=(const MemoryImports&) = delete;

  bool has(int rank, const SharedMemory& memory) const {
    return mapped_.contains({rank, memory.id});
  }
  /// Lets go of what may not be mapped together with `memory`, new memory of `rank`: what it lies
  /// upon, which has been freed, and older allocations in the same blocks of the driver, which may
  /// have been. `keep` are ids of memory of `rank` that has not been freed. Follows from the calls
  /// alone.
  void make_room(int rank, const SharedMemory& memory, std::span<const std::uint64_t> keep);
  /// The last operation that uses what has been let go of but is still mapped, for those of `rank`
  /// in the blocks of `memory`, or of all of them; 0 if none.
  std::uint64_t in_the_way(int rank, const SharedMemory* memory) const noexcept;
  /// Unmaps what has been let go of, as far as the first `passed` operations are all that use it.
  void close_retired(std::uint64_t passed);
  /// Maps memory of `rank` for operation `epoch`; make_room() was called. `here`: it belongs to
  /// this process, which uses its own address. The context is current. `busy` is set if the driver
  /// has something else of that process there.
  Status open(int rank, const SharedMemory& memory, std::uint64_t epoch, bool here, bool& busy);
  /// Unmaps memory that no operation has used since open(), if it is mapped.
  void forget(int rank, const SharedMemory& memory);
  /// Lets go of everything.
  void forget_all();
  /// Where the buffer is; has() it. `epoch` is the operation that uses it.
  std::byte* use(int rank, const SharedMemory& memory, std::uint64_t epoch);
  /// Unmaps what is not needed any more, as far as all operations that use it are among the first
  /// `passed`. Between operations.
  void trim(std::uint64_t passed);

 private:
  struct Mapping {
    int rank;
    CUdeviceptr base; ///< here
    std::uint64_t allocation, allocated;
    std::uint64_t used; ///< the last epoch
    bool here;
  };
  using Key = std::pair<int, std::uint64_t>; ///< rank, id
  void retire(std::map<Key, Mapping>::iterator mapping);
  void retire_oldest(int rank);

  CUcontext context_;
  std::map<Key, Mapping> mapped_;
  std::vector<Mapping> retired_;
};

} // namespace whorl::gpu
