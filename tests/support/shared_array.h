#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <new>

namespace whorl::test {

/// Array in memory that a process shares with those that it forks, zeroed at the start.
template <class Type>
class SharedArray {
 public:
  explicit SharedArray(std::size_t size) : bytes_((size > 0 ? size : 1) * sizeof(Type)) {
    void* const memory =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<Type*>(memory);
    std::uninitialized_default_construct_n(data_, size);
  }
  ~SharedArray() { ::munmap(data_, bytes_); }
  SharedArray(const SharedArray&) = delete;
  SharedArray& operator=(const SharedArray&) = delete;

  Type* data() noexcept { return data_; }
  Type& operator[](std::size_t index) noexcept { return data_[index]; }

 private:
  std::size_t bytes_;
  Type* data_ = nullptr;
};

} // namespace whorl::test
