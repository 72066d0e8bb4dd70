#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/system.h"
#include "memory/memory_map.h"
#include "memory/page_ranges.h"

namespace whorl {

/// Registration of a buffer. Owned by its heap.
struct HeapRegistration {
  std::uintptr_t begin = 0; ///< address of the first whole page
  std::size_t size = 0;
  std::size_t offset = 0; ///< offset in the heap
  int references = 0;
};

/// Observer of a heap, told of memory that leaves it.
class HeapWatcher {
 public:
  virtual ~HeapWatcher() = default;
  /// Gives up whatever refers to the pages of `memory`, which are returned to the system next. Any
  /// thread; must not call the heap.
  virtual void leaving(std::span<const std::byte> memory) noexcept = 0;
};

/// Memory of this process that the other ranks of the host can map: one memfd, divided into pages.
///
///   memfd       [ a ][ b ]......[ r ]...        capacity bytes, sparse
///   reserved    [ a ][ b ]......---------       addresses of alloc(): base + offset
///   elsewhere                   [ r ]           registered: the pages of a buffer of the user
///
/// Freed memory keeps its pages, here and in the ranks that have mapped them, for the next alloc()
/// of as many bytes: to get pages from the system takes a hundred times longer than a small
/// operation. A part of the capacity may be kept so; all of it is given back when memory or
/// addresses are short.
///
/// Every page is backed by memory before it can be touched, after a comparison with the memory
/// limits of the process, which gives an error instead of a SIGBUS or a kill. If another process
/// uses up the memory in between, the kernel decides. All functions may be called by any thread;
/// find() takes no lock. The process has one heap (see below); others are for tests.
class Heap {
 public:
  /// Makes a heap of `capacity` bytes, rounded up to pages.
  static Result<std::unique_ptr<Heap>> create(std::size_t capacity);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// Allocates memory, page-aligned; its contents are unspecified. Returns null for size 0.
  Result<void*> alloc(std::size_t size);
  /// Ends an allocation. Null is allowed; any other pointer that alloc() did not return is an
  /// error.
  Status free(void* pointer);
  /// Returns whether [pointer, pointer + size) lies in this heap, and writes the offset in the heap
  /// to `*offset`. Takes no lock and makes no system call or allocation.
  bool find(const void* pointer, std::size_t size, std::uint64_t* offset) const noexcept {
    const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(pointer);
    const std::uintptr_t inside = address - base_;
    if (inside < capacity_) {
      *offset = inside;
      return size <= capacity_ - inside;
    }
    return index_.find(address, size, offset);
  }

  /// Moves the whole pages inside [buffer, buffer + size) into the heap, at the same address and
  /// with their contents; no other thread may touch them meanwhile. Returns null, and leaves the
  /// buffer as it is, if there is nothing to move or the buffer cannot be moved: no whole page,
  /// already in the heap, not private anonymous writable memory (a file, read-only, a stack), too
  /// many registrations or too little memory. A range inside a registered one shares that
  /// registration; one that overlaps only in part is left alone.
  Result<HeapRegistration*> adopt(void* buffer, std::size_t size);
  /// Ends a registration; the last release moves the pages back into private memory at the same
  /// address. Null is allowed. If the kernel refuses to move some pages, the registration lasts,
  /// but find() does not find it any more, and another release moves the rest.
  Status release(HeapRegistration* registration);

  /// Returns the allocation or the registered pages that hold [pointer, pointer + size); empty if
  /// there are none.
  std::span<std::byte> extent(const void* pointer, std::size_t size);
  /// Adds or removes an observer. Once it is removed, no call of leaving() is under way.
  void watch(HeapWatcher* watcher);
  void unwatch(HeapWatcher* watcher);

  int fd() const noexcept { return fd_.get(); }
  std::size_t capacity() const noexcept { return capacity_; }
  /// Returns the number of bytes that are allocated or registered, in whole pages.
  std::size_t used();
  /// Returns the number of bytes that are kept for later allocations.
  std::size_t kept();

 private:
  /// Part of the capacity that freed memory may keep. Larger: programs that free much find it
  /// again. Smaller: more is left to others.
  static constexpr std::size_t kKeptPart = 64;

  Heap(Fd fd, std::uintptr_t base, std::size_t capacity, std::size_t page)
      : fd_(std::move(fd)),
        base_(base),
        capacity_(capacity),
        page_(page),
        free_(capacity),
        kept_(capacity / kKeptPart) {}

  std::optional<std::size_t> take(std::size_t size);
  void give_back(std::size_t offset, std::size_t size);
  void give_back_kept();
  Status back(std::size_t offset, std::size_t size);
  int open_view(std::size_t offset, std::size_t size) noexcept;
  void close_view(std::size_t offset, std::size_t size) noexcept;
  void discard(std::size_t offset, std::size_t size);
  Status move_in(std::uintptr_t address, std::size_t offset, std::size_t size);
  Status move_out(std::uintptr_t address, std::size_t offset, std::size_t size, int protection);
  Result<std::vector<Mapping>> still_mapped(const HeapRegistration& registration) const;
  void tell_leaving(std::uintptr_t address, std::size_t size) noexcept;

  const Fd fd_;
  const std::uintptr_t base_; ///< first reserved address
  const std::size_t capacity_;
  const std::size_t page_; ///< bytes of a page
  AddressIndex index_;

  std::mutex mutex_; ///< guard of all fields below
  FreeRanges free_;
  KeptRanges kept_;
  std::map<std::size_t, std::size_t> allocated_; ///< offset → size
  std::map<std::uintptr_t, std::unique_ptr<HeapRegistration>> registered_;
  std::vector<HeapWatcher*> watchers_;
};

// The heap of this process. The first call of a function that needs the heap makes it; the heap
// lasts until the process ends. A child of fork() starts without a heap: the inherited pages still
// belong to the parent.

/// Returns the capacity of that heap: WHORL_HEAP_BYTES, or the size of the machine's memory or of
/// the largest file, if that is less. The error says what is wrong with the parameter.
Result<std::size_t> heap_capacity();
Result<Heap*> process_heap();
Result<void*> heap_alloc(std::size_t size);
Status heap_free(void* pointer);
Result<HeapRegistration*> heap_adopt(void* buffer, std::size_t size);
Status heap_release(HeapRegistration* registration);
/// Returns the number of bytes that are allocated or registered.
std::size_t heap_bytes();
/// Calls Heap::find(); returns false if there is no heap yet.
bool heap_find(const void* pointer, std::size_t size, std::uint64_t* offset) noexcept;
/// Returns the heap of this process, or null if there is none yet.
Heap* existing_heap() noexcept;

} // namespace whorl
