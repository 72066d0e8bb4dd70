#pragma once

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "gpu/mappings.h"

namespace whorl::gpu {

/// Description of a buffer in device memory that other processes map.
struct SharedMemory {
  std::uint64_t address = 0, bytes = 0;        ///< place of the buffer, in its process
  std::uint64_t allocation = 0, allocated = 0; ///< begin and bytes of the allocation or run
  std::uint64_t id = 0;                        ///< id of the allocation: never used again there
  std::array<std::byte, sizeof(CUipcMemHandle)> handle{}; ///< handle of the allocation
  /// Number of mappings of a run (mappings.h), whose descriptors are handed over when it is first
  /// used; 0: an allocation, with a handle.
  std::uint64_t mappings = 0;

  /// Returns whether the values, which come from another process, are consistent.
  bool valid(std::uint64_t expected_bytes) const noexcept {
    return bytes == expected_bytes && allocated <= UINT64_MAX - allocation &&
           address >= allocation && address - allocation <= allocated &&
           bytes <= allocated - (address - allocation);
  }
};

/// Source of this process's allocations for another process. One thread at a time.
class MemoryExports {
 public:
  static constexpr std::size_t kMaxHeld = 64;

  /// Keeps at most `max_known` handles; among them may be those of freed allocations.
  explicit MemoryExports(std::size_t max_known = 1024) : max_known_(max_known) {}
  /// Returns the number of allocations and runs that are kept.
  std::size_t known() const noexcept { return known_.size() + runs_.size(); }
  /// Describes a buffer. Returns nothing for memory that cannot be shared (of a pool, managed,
  /// mappings without descriptors). The context of the memory is current.
  std::optional<SharedMemory> find(const void* buffer, std::size_t bytes);
  /// Takes references to the memory of a run that find() gave, and keeps them as long as the run's
  /// id, so that the id stays that of the same memory. Fails if the run has been mapped anew.
  Result<std::shared_ptr<const PhysicalMemory>> hold(const SharedMemory& run);
  /// Forgets runs, and releases their memory, until the kMaxHeld that were found last are held.
  void trim();

 private:
  struct Export {
    std::uint64_t id;
    std::array<std::byte, sizeof(CUipcMemHandle)> handle;
  };
  struct Run {
    std::uint64_t id;
    std::vector<MemoryMapping> mappings;
    std::uint64_t found = 0; ///< number of the last call of find()
    std::shared_ptr<const PhysicalMemory> held{};
  };
  std::optional<SharedMemory> find_run(CUdeviceptr buffer, std::size_t bytes);

  std::size_t max_known_;
  std::map<std::uint64_t, Export> known_; ///< exports by begin of the allocation
  std::map<std::pair<std::uint64_t, std::size_t>, Run> runs_; ///< runs by begin and number
  std::uint64_t runs_made_ = 0, finds_ = 0;
};

/// Size of the driver's blocks: it places small allocations in blocks of 2 MiB and maps whole
/// blocks.
inline constexpr std::uint64_t kDriverBlock = std::uint64_t{2} << 20;

/// Allocations of other processes that are mapped in this one, each as long as it is among the last
/// kMaxMapped that its rank has used, or a graph uses it. A freed allocation stays in the device's
/// memory until then. Runs of mappings may share memory and addresses with each other; a run is
/// unmapped when another one is exactly in its place. One thread at a time.
class MemoryImports {
 public:
  static constexpr std::size_t kMaxMapped = 64;

  explicit MemoryImports(CUcontext context);
  /// Unmaps everything; no kernel uses the memory any more. A reset of the context has unmapped all
  /// but runs.
  ~MemoryImports();
  MemoryImports(const MemoryImports&) = delete;
  MemoryImports& operator=(const MemoryImports&) = delete;

  bool has(int rank, const SharedMemory& memory) const {
    const auto found = mapped_.find({rank, memory.id});
    return found != mapped_.end() && found->second.allocation == memory.allocation &&
           found->second.allocated == memory.allocated;
  }
  /// Retires allocations that may not be mapped together with `memory`, new memory of `rank`: those
  /// at its addresses, which have been freed, and older ones in the same blocks of the driver,
  /// which may have been. `keep` are ids of memory of `rank` that has not been freed.
  void make_room(int rank, const SharedMemory& memory, std::span<const std::uint64_t> keep);
  /// Returns the last operation that uses retired memory which is still mapped, for that of `rank`
  /// in the blocks of `memory`, or (null) all of it; 0 if none.
  std::uint64_t in_the_way(int rank, const SharedMemory* memory) const noexcept;
  /// Unpins retired memory of `rank` in the blocks of `memory`, where the driver has other memory
  /// mapped: the retired memory has been freed, so graphs that use it are not launched any more.
  void unpin(int rank, const SharedMemory& memory) noexcept;
  /// Unmaps retired memory that only the first `passed` operations use. May wait for all streams of
  /// the context.
  void close_retired(std::uint64_t passed);
  /// Maps memory of `rank`, of another process, for operation `epoch`; make_room() was called. The
  /// context is current. Sets `busy` if the driver has something else of that process there.
  Status open(int rank, const SharedMemory& memory, std::uint64_t epoch, bool& busy);
  /// Maps a run of mappings, as open() does an allocation, at any address. `physical` is all of it.
  Status open_run(int rank, const SharedMemory& run, std::uint64_t epoch,
                  const PhysicalMemory& physical);
  /// Returns the address of a buffer that has() found. `epoch` is the operation that uses it.
  std::byte* use(int rank, const SharedMemory& memory, std::uint64_t epoch);
  /// Keeps the memory of a buffer mapped for operation `captured`, until that has been released.
  /// Operations that are captured into graphs have separate numbers, from 1.
  void pin(int rank, const SharedMemory& memory, std::uint64_t captured);
  /// Declares the graphs of all captured operations before `first` gone.
  void release(std::uint64_t first) noexcept { released_ = std::max(released_, first); }
  /// Retires memory that is not needed any more. Called between operations.
  void trim();

 private:
  struct Mapping {
    int rank;
    std::uint64_t id;
    CUdeviceptr base; ///< address in this process
    std::uint64_t allocation, allocated;
    std::uint64_t used;       ///< last epoch
    std::uint64_t pinned = 0; ///< last captured operation
    bool run = false;
    MappedMemory mapped{}; ///< memory of a run
  };
  /// Returns whether a mapped allocation shares a block of `block` bytes with `memory`, or a run is
  /// in the place of `memory`.
  static bool overlap(const Mapping& old, const SharedMemory& memory, std::uint64_t block) noexcept;
  using Key = std::pair<int, std::uint64_t>; ///< rank, id
  void retire(std::map<Key, Mapping>::iterator mapping);
  void retire_oldest(int rank);
  bool is_pinned(const Mapping& mapping) const noexcept { return mapping.pinned >= released_; }

  CUcontext context_;
  std::uint64_t context_id_;
  std::map<Key, Mapping> mapped_;
  std::vector<Mapping> retired_;
  std::uint64_t released_ = 1; ///< first captured operation that has not been released
};

} // namespace whorl::gpu
