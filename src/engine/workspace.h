#pragma once

#include <cstddef>
#include <memory>

namespace whorl {

/// Memory that only grows, for scratch chunks. 64-byte aligned.
class Workspace {
 public:
  /// Makes the memory at least `bytes` large; invalidates earlier results of data().
  void reserve(std::size_t bytes);
  std::byte* data() const noexcept { return memory_.get(); }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
};

} // namespace whorl
