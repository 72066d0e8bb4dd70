#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace whorl::test {

/// Zeroed memory, 128-byte aligned.
class AlignedMemory {
 public:
  explicit AlignedMemory(std::size_t bytes)
      : data_(static_cast<std::byte*>(::operator new (bytes + 1, std::align_val_t{128}))) {
    std::memset(data_.get(), 0, bytes);
  }
  std::byte* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{128}); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

} // namespace whorl::test
