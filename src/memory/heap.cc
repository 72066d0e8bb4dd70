#include "memory/heap.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/log.h"
#include "base/shm_segment.h"
#include "memory/memory_limit.h"
#include "memory/memory_map.h"

namespace whorl {
namespace {

constexpr const char* kHeapName = "whorl-heap";
constexpr int kReadWrite = PROT_READ | PROT_WRITE;
/// Bytes of the pieces in which a registered buffer is moved, which bounds the additional memory.
constexpr std::size_t kMoveBytes = std::size_t{64} << 20;

Status failed(std::string_view what, std::size_t size, int error) {
  return Status::error(Code::kSystemError, fmt::format("cannot {} {} bytes of the shared heap: {}",
                                                       what, size, shared_memory_error(error)));
}

/// Whether this thread holds the mutex of a heap. If what allocates then is the heap itself, by
/// libwhorl_malloc.so, the memory has to come from elsewhere.
thread_local bool in_heap = false;

/// Lock of a heap's mutex, by which a thread knows that it holds one.
class HeapLock {
 public:
  explicit HeapLock(std::mutex& mutex) : guard_(mutex) { in_heap = true; }
  ~HeapLock() { in_heap = false; }
  HeapLock(const HeapLock&) = delete;
  HeapLock& operator=(const HeapLock&) = delete;

 private:
  const std::lock_guard<std::mutex> guard_;
};

void* pointer_to(std::uintptr_t address) noexcept { return reinterpret_cast<void*>(address); }

} // namespace

Result<std::unique_ptr<Heap>> Heap::create(std::size_t capacity) {
  if (capacity == 0 || capacity > (std::size_t{1} << 46)) {
    return Status::error(Code::kInvalidUsage,
                         fmt::format("a shared heap of {} bytes is impossible; see "
                                     "WHORL_HEAP_BYTES",
                                     capacity));
  }
  const std::size_t page = sys().page_bytes();
  capacity = round_up(capacity, page);
  const int created = sys().memfd_create(kHeapName);
  if (created < 0) return failed("create", capacity, created);
  Fd fd(created);
  if (const int error = sys().ftruncate(fd.get(), capacity); error < 0) {
    return failed("size", capacity, error);
  }
  if (const int error = sys().seal_size(fd.get()); error < 0) {
    return failed("seal", capacity, error);
  }
  void* base = nullptr;
  const int error = sys().mmap(nullptr, capacity, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, &base);
  if (error < 0) {
    const Status status = failed("reserve addresses for", capacity, error);
    return Status::error(status.code(), status.message() +
                                            "; raise the limit on addresses (ulimit -v), or set "
                                            "WHORL_HEAP_BYTES to less");
  }
  return std::unique_ptr<Heap>(
      new Heap(std::move(fd), reinterpret_cast<std::uintptr_t>(base), capacity, page));
}

Heap::~Heap() { sys().munmap(pointer_to(base_), capacity_); }

/// Backs pages with memory. Returns an error if a memory limit would be exceeded.
Status Heap::back(std::size_t offset, std::size_t size) {
  MemoryBudget budget = memory_budget();
  if (size > budget.bytes && kept_.bytes() > 0) {
    give_back_kept();
    budget = memory_budget();
  }
  if (size > budget.bytes) {
    return Status::error(
        Code::kSystemError,
        fmt::format("{} bytes of the shared heap are more than the {} bytes that {} leaves; free "
                    "memory or raise the limit",
                    size, budget.bytes, budget.limit));
  }
  const int error = sys().fallocate(fd_.get(), offset, size);
  return error < 0 ? failed("get memory for", size, error) : Status();
}

/// Maps heap pages at base_ + offset. Returns 0 or −errno.
int Heap::open_view(std::size_t offset, std::size_t size) noexcept {
  void* address = nullptr;
  return sys().mmap(pointer_to(base_ + offset), size, kReadWrite,
                    MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd_.get(), offset, &address);
}

void Heap::close_view(std::size_t offset, std::size_t size) noexcept {
  void* address = nullptr;
  sys().mmap(pointer_to(base_ + offset), size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0, &address);
}

/// Returns pages to the system and their offsets to free_. If the hole cannot be punched, the
/// offsets are not used again, because the pages would not be zeroed.
void Heap::discard(std::size_t offset, std::size_t size) {
  const int error = sys().punch_hole(fd_.get(), offset, size);
  if (error == 0) return free_.give(offset, size);
  log(LogLevel::kWarn, failed("give back", size, error).message());
}

/// Gives an allocation's pages back to the system.
void Heap::give_back(std::size_t offset, std::size_t size) {
  tell_leaving(base_ + offset, size);
  close_view(offset, size);
  discard(offset, size);
}

void Heap::give_back_kept() {
  for (const KeptRanges::Range& range : kept_.take_all()) give_back(range.offset, range.size);
}

/// Takes an unused part of the heap, and what is kept if there is no other.
std::optional<std::size_t> Heap::take(std::size_t size) {
  auto offset = free_.take(size);
  if (!offset && kept_.bytes() > 0) {
    give_back_kept();
    offset = free_.take(size);
  }
  return offset;
}

Result<void*> Heap::alloc(std::size_t size) {
  if (size == 0) return nullptr;
  if (in_heap) return Status::error(Code::kInvalidUsage, "the shared heap allocates for itself");
  const HeapLock lock(mutex_);
  const std::size_t rounded = size <= capacity_ ? round_up(size, page_) : size;
  if (const auto kept = kept_.take(rounded)) {
    allocated_.emplace(*kept, rounded);
    return pointer_to(base_ + *kept);
  }
  const auto offset = size <= capacity_ ? take(rounded) : std::nullopt;
  if (!offset) {
    return Status::error(
        Code::kSystemError,
        fmt::format("the shared heap of {} bytes has no {} bytes in a row left ({} free in {} "
                    "pieces); raise {}",
                    capacity_, size, free_.free_bytes(), free_.fragments(),
                    capacity_ + page_ > sys().largest_file()
                        ? "the limit on the size of files (ulimit -f)"
                        : "WHORL_HEAP_BYTES"));
  }
  Status status = back(*offset, rounded);
  if (status.ok()) {
    if (const int error = open_view(*offset, rounded); error < 0) {
      status = failed("map", rounded, error);
    }
  }
  if (!status.ok()) {
    discard(*offset, rounded);
    return status;
  }
  allocated_.emplace(*offset, rounded);
  return pointer_to(base_ + *offset);
}

Status Heap::free(void* pointer) {
  if (pointer == nullptr) return {};
  const HeapLock lock(mutex_);
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(pointer) - base_;
  const auto found = offset < capacity_ ? allocated_.find(offset) : allocated_.end();
  if (found == allocated_.end()) {
    return Status::error(
        Code::kInvalidArgument,
        fmt::format("{} was not allocated from the shared heap of this process, or is free already",
                    pointer));
  }
  const std::size_t size = found->second;
  allocated_.erase(found);
  if (size > kept_.most()) {
    give_back(offset, size);
    return {};
  }
  if (kept_.bytes() + size > kept_.most()) give_back_kept();
  kept_.give(offset, size);
  return {};
}

/// Copies one piece of a buffer into the heap and maps the heap's pages in place of it.
Status Heap::move_in(std::uintptr_t address, std::size_t offset, std::size_t size) {
  WHORL_TRY(back(offset, size));
  if (const int error = open_view(offset, size); error < 0) return failed("map", size, error);
  std::memcpy(pointer_to(base_ + offset), pointer_to(address), size);
  close_view(offset, size);
  void* mapped = nullptr;
  const int error = sys().mmap(pointer_to(address), size, kReadWrite,
                               MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd_.get(), offset, &mapped);
  return error < 0 ? failed("map a registered buffer to", size, error) : Status();
}

/// Copies a part of a registered buffer into private memory at its place, with the protection that
/// the program has given it.
Status Heap::move_out(std::uintptr_t address, std::size_t offset, std::size_t size,
                      int protection) {
  if (const int error = open_view(offset, size); error < 0) return failed("map", size, error);
  void* mapped = nullptr;
  const int error = sys().mmap(pointer_to(address), size, kReadWrite,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0, &mapped);
  if (error == 0) std::memcpy(pointer_to(address), pointer_to(base_ + offset), size);
  close_view(offset, size);
  if (error == 0 && protection != kReadWrite) {
    sys().mprotect(pointer_to(address), size, protection);
  }
  return error < 0 ? failed("move a registered buffer out of", size, error) : Status();
}

Result<HeapRegistration*> Heap::adopt(void* buffer, std::size_t size) {
  const auto address = reinterpret_cast<std::uintptr_t>(buffer);
  if (buffer == nullptr || size > UINTPTR_MAX - page_ - address) {
    return Status::error(
        Code::kInvalidArgument,
        fmt::format("cannot register {} bytes at {}: no such memory", size, buffer));
  }
  const std::uintptr_t begin = round_up(address, page_);
  const std::uintptr_t end = (address + size) / page_ * page_;
  HeapRegistration* const none = nullptr;
  if (begin >= end || begin - base_ < capacity_) return none;
  const HeapLock lock(mutex_);

  auto after = registered_.upper_bound(begin);
  if (after != registered_.begin()) {
    HeapRegistration& before = *std::prev(after)->second;
    if (end <= before.begin + before.size) {
      ++before.references;
      return &before;
    }
  }
  const auto mappings = mappings_over(begin, end);
  if (!mappings.ok() || index_.full() || !cover(*mappings, begin, end) ||
      !std::all_of(mappings->begin(), mappings->end(), is_plain_memory)) {
    return none;
  }
  const std::size_t bytes = end - begin;
  const auto offset = take(bytes);
  if (!offset) return none;

  std::size_t moved = 0;
  Status status;
  while (moved < bytes && status.ok()) {
    const std::size_t piece = std::min(kMoveBytes, bytes - moved);
    status = move_in(begin + moved, *offset + moved, piece);
    if (status.ok()) moved += piece;
  }
  if (!status.ok()) {
    log(LogLevel::kWarn, fmt::format("a buffer of {} bytes stays unregistered and will be copied: "
                                     "{}",
                                     size, status.message()));
    // A piece that cannot be moved back stays in the heap: it works, and its pages are not reused.
    if (moved > 0) WHORL_TRY(move_out(begin, *offset, moved, kReadWrite));
    discard(*offset, bytes);
    return none;
  }
  auto registration = std::make_unique<HeapRegistration>(
      HeapRegistration{.begin = begin, .size = bytes, .offset = *offset, .references = 1});
  HeapRegistration* const result = registration.get();
  registered_.emplace(begin, std::move(registration));
  index_.insert(begin, bytes, *offset);
  return result;
}

std::span<std::byte> Heap::extent(const void* pointer, std::size_t size) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto holds = [&](std::uintptr_t begin, std::size_t bytes) {
    return address >= begin && address - begin <= bytes && size <= bytes - (address - begin);
  };
  const HeapLock lock(mutex_);
  if (auto after = allocated_.upper_bound(address - base_);
      address - base_ < capacity_ && after != allocated_.begin()) {
    const auto& [offset, bytes] = *std::prev(after);
    if (!holds(base_ + offset, bytes)) return {};
    return {static_cast<std::byte*>(pointer_to(base_ + offset)), bytes};
  }
  auto after = registered_.upper_bound(address);
  if (after == registered_.begin()) return {};
  const HeapRegistration& found = *std::prev(after)->second;
  if (!holds(found.begin, found.size)) return {};
  return {static_cast<std::byte*>(pointer_to(found.begin)), found.size};
}

void Heap::watch(HeapWatcher* watcher) {
  const HeapLock lock(mutex_);
  watchers_.push_back(watcher);
}

void Heap::unwatch(HeapWatcher* watcher) {
  const HeapLock lock(mutex_);
  std::erase(watchers_, watcher);
}

void Heap::tell_leaving(std::uintptr_t address, std::size_t size) noexcept {
  for (HeapWatcher* const watcher : watchers_) {
    watcher->leaving({static_cast<const std::byte*>(pointer_to(address)), size});
  }
}

std::size_t Heap::used() {
  const HeapLock lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [offset, size] : allocated_) bytes += size;
  for (const auto& [begin, registration] : registered_) bytes += registration->size;
  return bytes;
}

std::size_t Heap::kept() {
  const HeapLock lock(mutex_);
  return kept_.bytes();
}

/// Returns the parts of a registered buffer that are still mapped from this heap: if the user has
/// unmapped the buffer, or a part of it, too early, other memory may lie there by now, also that of
/// another rank's heap, which has the same name.
Result<std::vector<Mapping>> Heap::still_mapped(const HeapRegistration& registration) const {
  std::uint64_t inode = 0;
  if (const int error = sys().file_inode(fd_.get(), &inode); error < 0) {
    return failed("look for", registration.size, error);
  }
  auto mappings = mappings_over(registration.begin, registration.begin + registration.size);
  if (!mappings.ok()) return mappings;
  std::erase_if(*mappings, [&](const Mapping& mapping) {
    return mapping.access[3] != 's' || mapping.inode != inode ||
           !mapping.path.starts_with(std::string("/memfd:") + kHeapName) ||
           mapping.begin - mapping.offset != registration.begin - registration.offset;
  });
  return mappings;
}

Status Heap::release(HeapRegistration* registration) {
  if (registration == nullptr) return {};
  const HeapLock lock(mutex_);
  const auto found = std::find_if(registered_.begin(), registered_.end(), [&](const auto& entry) {
    return entry.second.get() == registration;
  });
  if (found == registered_.end()) {
    return Status::error(Code::kInvalidArgument,
                         "this is no registration, or it has ended already");
  }
  if (registration->references > 1) {
    --registration->references;
    return {};
  }
  const std::uintptr_t begin = registration->begin;
  const std::size_t offset = registration->offset;
  // Whatever comes of it, from now on messages are copied: other memory may soon lie at the
  // address.
  index_.erase(begin);
  tell_leaving(begin, registration->size);
  const auto mapped = still_mapped(*registration);
  if (!mapped.ok()) {
    return mapped.status().with_context(
        fmt::format("the buffer at {:#x} stays registered; deregister it again later", begin));
  }
  const bool whole = cover(*mapped, begin, begin + registration->size);
  const auto shorten = [&](std::size_t size) {
    if (size == registration->size) return;
    discard(offset + size, registration->size - size);
    registration->size = size;
  };
  for (auto mapping = mapped->rbegin(); mapping != mapped->rend(); ++mapping) {
    while (registration->size > mapping->begin - begin) {
      shorten(std::min(registration->size, mapping->end - begin));
      const std::size_t piece = std::min(kMoveBytes, begin + registration->size - mapping->begin);
      const std::size_t left = registration->size - piece;
      WHORL_TRY(move_out(begin + left, offset + left, piece, protection_of(*mapping)));
      shorten(left);
    }
  }
  shorten(0);
  registered_.erase(found);
  if (whole) return {};
  return Status::error(
      Code::kInvalidUsage,
      fmt::format("the buffer at {:#x} was unmapped before its registration ended; deregister "
                  "first, then free",
                  begin));
}

} // namespace whorl
