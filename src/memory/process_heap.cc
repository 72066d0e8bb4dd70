#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "base/params.h"
#include "memory/heap.h"
#include "memory/memory_limit.h"

namespace whorl {
namespace {

std::mutex creating;                  // held across fork(), so that the child finds it free
std::atomic<Heap*> the_heap{nullptr}; // never destroyed: buffers outlive main()

/// Makes children of fork() start without a heap: their copy describes memory of the parent.
void forget_in_child() {
  static const int once = pthread_atfork([] { creating.lock(); }, [] { creating.unlock(); },
                                         [] {
                                           the_heap.store(nullptr, std::memory_order_relaxed);
                                           creating.unlock();
                                         });
  static_cast<void>(once);
}

} // namespace

Result<std::size_t> heap_capacity() {
  if (param_text(Param::kHeapBytes).empty()) {
    const std::uint64_t memory = physical_memory();
    const std::size_t page = sys().page_bytes();
    const std::size_t most = std::max(sys().largest_file() / page, std::size_t{1}) * page;
    return std::min<std::size_t>(memory != 0 ? memory : std::uint64_t{1} << 36, most);
  }
  const auto bytes = param_int(Param::kHeapBytes, 4096, std::int64_t{1} << 46);
  if (!bytes.ok()) return bytes.status();
  return static_cast<std::size_t>(*bytes);
}

Heap* existing_heap() noexcept {
  return the_heap.load(std::memory_order_acquire); // pairs with release in process_heap()
}

Result<Heap*> process_heap() {
  if (Heap* const heap = existing_heap()) return heap;
  forget_in_child();
  const std::lock_guard lock(creating);
  if (Heap* const heap = existing_heap()) return heap;
  const auto bytes = heap_capacity();
  if (!bytes.ok()) return bytes.status();
  auto heap = Heap::create(*bytes);
  if (!heap.ok()) return heap.status();
  Heap* const made = heap->release();
  the_heap.store(made, std::memory_order_release); // pairs with acquire in existing_heap()
  return made;
}

Result<void*> heap_alloc(std::size_t size) {
  const auto heap = process_heap();
  return heap.ok() ? (*heap)->alloc(size) : Result<void*>(heap.status());
}

Status heap_free(void* pointer) {
  if (pointer == nullptr) return {};
  Heap* const heap = existing_heap();
  return heap != nullptr ? heap->free(pointer)
                         : Status::error(Code::kInvalidArgument,
                                         "this process has allocated nothing from a shared heap");
}

Result<HeapRegistration*> heap_adopt(void* buffer, std::size_t size) {
  const auto heap = process_heap();
  return heap.ok() ? (*heap)->adopt(buffer, size) : Result<HeapRegistration*>(heap.status());
}

Status heap_release(HeapRegistration* registration) {
  if (registration == nullptr) return {};
  Heap* const heap = existing_heap();
  return heap != nullptr
             ? heap->release(registration)
             : Status::error(Code::kInvalidArgument, "this process has registered nothing");
}

std::size_t heap_bytes() {
  Heap* const heap = existing_heap();
  return heap != nullptr ? heap->used() : 0;
}

bool heap_find(const void* pointer, std::size_t size, std::uint64_t* offset) noexcept {
  const Heap* const heap = existing_heap();
  return heap != nullptr && heap->find(pointer, size, offset);
}

} // namespace whorl
