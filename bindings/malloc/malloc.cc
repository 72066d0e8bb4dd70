// The C library's allocation functions: large blocks come from memory that the other ranks of the
// host can map, everything else from the next library that has these functions.
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "bindings/malloc/blocks.h"

using whorl_malloc::Blocks;

namespace {

/// Whether large blocks are taken: not before the library below is initialized.
std::atomic<bool> serving{false};
/// Whether this thread is inside a call of the library below, which allocates for itself.
thread_local bool inside = false;

/// Function of the next library, looked up at its first use: that may be before any constructor.
template <typename Function>
class Next {
 public:
  constexpr explicit Next(const char* name) noexcept : name_(name) {}
  template <typename... Args>
  auto operator()(Args... args) noexcept {
    Function* function = function_.load(std::memory_order_relaxed);
    if (function == nullptr) [[unlikely]] {
      function = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name_));
      if (function == nullptr) std::abort(); // no C library has fewer functions
      function_.store(function, std::memory_order_relaxed);
    }
    return function(args...);
  }

 private:
  const char* name_;
  std::atomic<Function*> function_{nullptr};
};

constinit Next<void*(std::size_t)> next_malloc("malloc");
constinit Next<void*(std::size_t, std::size_t)> next_calloc("calloc");
constinit Next<void*(void*, std::size_t)> next_realloc("realloc");
constinit Next<void(void*)> next_free("free");
constinit Next<int(void**, std::size_t, std::size_t)> next_posix_memalign("posix_memalign");
constinit Next<void*(std::size_t, std::size_t)> next_aligned_alloc("aligned_alloc");
constinit Next<void*(std::size_t, std::size_t)> next_memalign("memalign");
constinit Next<std::size_t(void*)> next_malloc_usable_size("malloc_usable_size");

/// Takes a large block; null if the next library is to serve the request.
void* take(std::size_t bytes, std::size_t alignment = 1) noexcept {
  if (bytes < Blocks::kMinBytes || alignment > Blocks::kAlignment || inside ||
      !serving.load(std::memory_order_acquire)) { // pairs with release in begin()
    return nullptr;
  }
  const int error = errno;
  inside = true;
  void* const memory = Blocks::all().take(bytes);
  inside = false;
  errno = error;
  return memory;
}

/// Returns the size of the large block at `memory`, or 0 if there is none.
std::size_t size_of(const void* memory) noexcept {
  return serving.load(std::memory_order_acquire) ? Blocks::all().size(memory) : 0;
}

bool give_back(void* memory) noexcept {
  if (inside || !serving.load(std::memory_order_acquire)) return false;
  const int error = errno;
  inside = true;
  const bool ours = Blocks::all().give_back(memory);
  inside = false;
  errno = error;
  return ours;
}

/// Begins to serve large blocks. Runs after the constructors of the library below.
[[gnu::constructor]] void begin() {
  Blocks::all();
  pthread_atfork([] { Blocks::all().before_fork(); }, [] { Blocks::all().after_fork_in_parent(); },
                 [] { Blocks::all().after_fork_in_child(); });
  serving.store(true, std::memory_order_release);
}

} // namespace

#pragma GCC visibility push(default)
extern "C" {

void* malloc(std::size_t bytes) {
  void* const memory = take(bytes);
  return memory != nullptr ? memory : next_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t bytes) {
  std::size_t size = 0;
  if (!__builtin_mul_overflow(count, bytes, &size)) {
    if (void* const memory = take(size); memory != nullptr) return std::memset(memory, 0, size);
  }
  return next_calloc(count, bytes); // sets errno where the product is too large
}

void* realloc(void* memory, std::size_t bytes) {
  if (memory == nullptr) return malloc(bytes);
  const std::size_t size = size_of(memory);
  if (size == 0) {
    // A block that grows beyond the limit moves; one that was large before stays.
    const std::size_t before = bytes < Blocks::kMinBytes ? 0 : next_malloc_usable_size(memory);
    if (before == 0 || before >= Blocks::kMinBytes) return next_realloc(memory, bytes);
    void* const moved = take(bytes);
    if (moved == nullptr) return next_realloc(memory, bytes);
    std::memcpy(moved, memory, before);
    next_free(memory);
    return moved;
  }
  if (bytes == 0) {
    free(memory);
    return nullptr;
  }
  if (bytes <= size && bytes > size / 2) return memory;
  void* const moved = malloc(bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, memory, std::min(size, bytes));
  free(memory);
  return moved;
}

void* reallocarray(void* memory, std::size_t count, std::size_t bytes) {
  std::size_t size = 0;
  if (__builtin_mul_overflow(count, bytes, &size)) {
    errno = ENOMEM;
    return nullptr;
  }
  return realloc(memory, size);
}

void free(void* memory) {
  if (memory != nullptr && !give_back(memory)) next_free(memory);
}

int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  if (alignment % sizeof(void*) == 0 && (alignment & (alignment - 1)) == 0 && alignment != 0) {
    if (void* const block = take(bytes, alignment); block != nullptr) {
      *memory = block;
      return 0;
    }
  }
  return next_posix_memalign(memory, alignment, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  void* const memory = take(bytes, alignment);
  return memory != nullptr ? memory : next_aligned_alloc(alignment, bytes);
}

void* memalign(std::size_t alignment, std::size_t bytes) {
  void* const memory = take(bytes, alignment);
  return memory != nullptr ? memory : next_memalign(alignment, bytes);
}

std::size_t malloc_usable_size(void* memory) {
  const std::size_t size = memory != nullptr ? size_of(memory) : 0;
  return size != 0 ? size : next_malloc_usable_size(memory);
}

} // extern "C"
#pragma GCC visibility pop
