#pragma once

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "gpu/mappings.h"

namespace whorl::gpu {

/// A buffer in device memory and how another process gets at it.
struct SharedMemory {
  std::uint64_t address = 0, bytes = 0;        ///< of the buffer, in its process
  std::uint64_t allocation = 0, allocated = 0; ///< begin and bytes of what it is part of
  std::uint64_t id = 0;                        ///< of the allocation: never used again there
  std::array<std::byte, sizeof(CUipcMemHandle)> handle{}; ///< of the allocation
  /// 0: an allocation, with a handle. Otherwise it is a run of so many mappings (mappings.h), whose
  /// descriptors are handed over when it is used for the first time.
  std::uint64_t mappings = 0;

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
  std::size_t known() const noexcept { return known_.size() + runs_.size(); } ///< that are kept
  /// Nothing for memory that cannot be shared (of a pool, managed, mappings without descriptors).
  /// The context of the memory is current.
  std::optional<SharedMemory> find(const void* buffer, std::size_t bytes);
  /// References to the memory of a run that find() gave. An error if it is mapped otherwise by now.
  Result<PhysicalMemory> hold(const SharedMemory& run);

 private:
  struct Export {
    std::uint64_t id;
    std::array<std::byte, sizeof(CUipcMemHandle)> handle;
  };
  struct Run {
    std::uint64_t id;
    std::vector<MemoryMapping> mappings;
    bool held = false; ///< hold() was called
  };
  std::optional<SharedMemory> find_run(CUdeviceptr buffer, std::size_t bytes);

  std::size_t most_known_;
  std::map<std::uint64_t, Export> known_;                     ///< by where the allocation begins
  std::map<std::pair<std::uint64_t, std::size_t>, Run> runs_; ///< by where they begin, and how many
  std::uint64_t runs_made_ = 0;
};

/// The driver has small allocations in blocks of 2 MiB and maps whole blocks.
inline constexpr std::uint64_t kDriverBlock = std::uint64_t{2} << 20;

/// Allocations of other processes that are mapped in this one, each as long as it is among the last
/// kMostMapped that its rank has used, or a graph uses it. A freed allocation stays in the device's
/// memory until then.
/// What is mapped depends on the calls alone, so it is alike on all ranks that make the same ones.
/// Runs of mappings may share memory and addresses with each other; one goes when another one is
/// exactly in its place. One thread at a time.
class MemoryImports {
 public:
  static constexpr std::size_t kMostMapped = 64;

  explicit MemoryImports(CUcontext context) : context_(context) {}
  /// No kernel uses the memory any more.
  ~MemoryImports();
  MemoryImports(const MemoryImports&) = delete;
  MemoryImports& operator=(const MemoryImports&) = delete;

  bool has(int rank, const SharedMemory& memory) const {
    const auto found = mapped_.find({rank, memory.id});
    return found != mapped_.end() && found->second.allocation == memory.allocation &&
           found->second.allocated == memory.allocated;
  }
  /// Lets go of what may not be mapped together with `memory`, new memory of `rank`: what it lies
  /// upon, which has been freed, and older allocations in the same blocks of the driver, which may
  /// have been. `keep` are ids of memory of `rank` that has not been freed. Follows from the calls
  /// alone.
  void make_room(int rank, const SharedMemory& memory, std::span<const std::uint64_t> keep);
  /// The last operation that uses what has been let go of but is still mapped, for those of `rank`
  /// in the blocks of `memory`, or of all of them; 0 if none.
  std::uint64_t in_the_way(int rank, const SharedMemory* memory) const noexcept;
  /// The driver has something else of `rank` where `memory` is to be mapped: graphs that use what
  /// has been let go of there are not launched any more, since that has been freed.
  void unpin(int rank, const SharedMemory& memory) noexcept;
  /// Unmaps what has been let go of, as far as the first `passed` operations are all that use it.
  /// May wait for all streams of the context.
  void close_retired(std::uint64_t passed);
  /// Maps memory of `rank` for operation `epoch`; make_room() was called. `here`: it belongs to
  /// this process, which uses its own address. The context is current. `busy` is set if the driver
  /// has something else of that process there.
  Status open(int rank, const SharedMemory& memory, std::uint64_t epoch, bool here, bool& busy);
  /// As open(), for a run of mappings, which goes to an address of its own. `physical` is all of
  /// it; `here` what is to be held of it, so that its id stays that of the same memory.
  Status open_run(int rank, const SharedMemory& run, std::uint64_t epoch, bool here,
                  PhysicalMemory physical);
  /// Unmaps memory that no operation has used since open(), if it is mapped.
  void forget(int rank, const SharedMemory& memory);
  /// Lets go of everything.
  void forget_all();
  /// Where the buffer is; has() it. `epoch` is the operation that uses it.
  std::byte* use(int rank, const SharedMemory& memory, std::uint64_t epoch);
  /// Keeps the memory of a buffer mapped, which operation `captured` of those that are captured
  /// into graphs uses, until that has been released. These have numbers of their own, from 1.
  void pin(int rank, const SharedMemory& memory, std::uint64_t captured);
  /// The graphs of all captured operations before `first` are gone. Alike on all ranks.
  void release(std::uint64_t first) noexcept { released_ = std::max(released_, first); }
  /// Lets go of what is not needed any more. Between operations.
  void trim();

 private:
  struct Mapping {
    int rank;
    std::uint64_t id;
    CUdeviceptr base; ///< here
    std::uint64_t allocation, allocated;
    std::uint64_t used; ///< the last epoch
    bool here;
    std::uint64_t pinned = 0; ///< the last captured operation
    bool run = false;
    PhysicalMemory held{}; ///< of a run of this rank
    MappedMemory mapped{}; ///< of a run of another process
  };
  /// Whether an allocation that is mapped shares a block of so many bytes with `memory`, or a run
  /// is in the place of `memory`.
  static bool overlap(const Mapping& old, const SharedMemory& memory, std::uint64_t block) noexcept;
  using Key = std::pair<int, std::uint64_t>; ///< rank, id
  void retire(std::map<Key, Mapping>::iterator mapping);
  void retire_oldest(int rank);
  bool is_pinned(const Mapping& mapping) const noexcept { return mapping.pinned >= released_; }

  CUcontext context_;
  std::map<Key, Mapping> mapped_;
  std::vector<Mapping> retired_;
  std::uint64_t released_ = 1; ///< the first captured operation that is not
};

} // namespace whorl::gpu
