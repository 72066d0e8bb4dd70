#pragma once

// Parts that the tests of heaps share.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "memory/heap.h"
#include "tests/support/large_pages.h"

namespace whorl::test {

/// Bytes of a page. TEST_LARGE_PAGES in the environment replaces the system by one with large
/// pages.
inline const std::size_t kPage = [] {
  static LargePages large;
  if (std::getenv("TEST_LARGE_PAGES") != nullptr) static const ScopedSystem scope(&large);
  return sys().page_bytes();
}();

/// Makes a heap.
inline std::unique_ptr<Heap> make_heap(std::size_t pages) {
  auto heap = Heap::create(pages * kPage);
  EXPECT_TRUE(heap.ok()) << heap.status().message();
  return heap.ok() ? std::move(*heap) : nullptr;
}

/// Private memory that may be registered.
class Buffer {
 public:
  explicit Buffer(std::size_t size, int protection = PROT_READ | PROT_WRITE) : size_(size) {
    EXPECT_EQ(sys().mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &data_), 0);
  }
  ~Buffer() { sys().munmap(data_, size_); }
  Buffer(const Buffer&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  void fill(std::uint8_t seed) {
    for (std::size_t i = 0; i < size_; ++i) data()[i] = static_cast<std::byte>(seed + i % 251);
  }
  bool holds(std::uint8_t seed) const {
    for (std::size_t i = 0; i < size_; ++i) {
      if (data()[i] != static_cast<std::byte>(seed + i % 251)) return false;
    }
    return true;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_;
};

} // namespace whorl::test
