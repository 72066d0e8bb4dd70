#include "transports/shm/peer_heap.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "transports/shm/by_process.h"

namespace whorl {
namespace {

ByProcess<PeerHeap>& known() {
  static auto* const instance =
      new ByProcess<PeerHeap>; // never destroyed: threads may outlive main()
  return *instance;
}

} // namespace

Result<std::shared_ptr<PeerHeap>> PeerHeap::of(std::uint64_t process_key, Fd fd) {
  std::size_t bytes = 0;
  const int sealed = sys().size_sealed(fd.get());
  if (const int error = sys().file_size(fd.get(), &bytes); sealed < 1 || error < 0) {
    return Status::error(
        Code::kInternalError,
        fmt::format("received a heap that is no sealed shared memory: {}",
                    error < 0 ? std::strerror(-error) : "it could shrink while it is read"));
  }
  return known().of(process_key, [&] { return std::make_shared<PeerHeap>(std::move(fd), bytes); });
}

PeerHeap::~PeerHeap() {
  const std::size_t count = windows();
  for (std::size_t i = 0; i < count; ++i) {
    sys().munmap(windows_[i].data, windows_[i].bytes);
  }
}

/// Returns the memory of a descriptor inside the window. Reads each block before it can be written:
/// a first read maps a page together with those around it, and for writing, too, while each page
/// that is written first causes a fault of its own, four times as expensive in all.
std::byte* PeerHeap::Window::use(const Descriptor& d) const noexcept {
  std::byte* const memory = data + (d.offset - begin);
  if (d.bytes == 0) return memory;
  const std::uint64_t last = (d.offset - begin + d.bytes - 1) / kBlockBytes;
  for (std::uint64_t block = (d.offset - begin) / kBlockBytes; block <= last; ++block) {
    if (seen[block].load(std::memory_order_relaxed)) continue;
    static_cast<void>(
        *static_cast<volatile std::byte*>(data + std::max(block * kBlockBytes, d.offset - begin)));
    seen[block].store(true, std::memory_order_relaxed); // a second read would do no harm
  }
  return memory;
}

/// Adds a window around the descriptor. Each window is at least as large as all before it together,
/// so that the table cannot fill up before the heap is mapped.
std::byte* PeerHeap::map(const Descriptor& descriptor) noexcept {
  const std::lock_guard lock(mutex_);
  const std::size_t count = count_.load(std::memory_order_relaxed);
  std::uint64_t mapped = kWindowBytes;
  for (std::size_t i = 0; i < count; ++i) {
    if (windows_[i].holds(descriptor)) return windows_[i].use(descriptor); // another thread's
    mapped += windows_[i].bytes;
  }
  if (count == windows_.size()) return nullptr;
  Window& window = windows_[count];
  window.begin = descriptor.offset / kWindowBytes * kWindowBytes;
  const std::uint64_t end = descriptor.offset + descriptor.bytes;
  window.bytes =
      std::min(bytes_, std::max(window.begin + mapped,
                                (end + kWindowBytes - 1) / kWindowBytes * kWindowBytes)) -
      window.begin;
  window.seen.reset(new (std::nothrow)
                        std::atomic<bool>[(window.bytes + kBlockBytes - 1) / kBlockBytes]());
  if (window.seen == nullptr) return nullptr;
  void* address = nullptr;
  if (sys().mmap(nullptr, window.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                 fd_.get(), window.begin, &address) < 0) {
    return nullptr;
  }
  window.data = static_cast<std::byte*>(address);
  count_.store(count + 1, std::memory_order_release); // pairs with acquire in at()
  return window.use(descriptor);
}

} // namespace whorl
