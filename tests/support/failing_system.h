#pragma once

#include <string>
#include <string_view>

#include "base/system.h"

namespace whorl {

/// System in which one call fails with one errno, until heal().
class FailingSystem final : public System {
 public:
  void fail(std::string_view call, int error) {
    call_ = call;
    error_ = error;
  }
  void heal() { call_.clear(); }

  int memfd_create(const char* name) noexcept override {
    return fails("memfd_create") ? -error_ : System::memfd_create(name);
  }
  int ftruncate(int fd, std::size_t size) noexcept override {
    return fails("ftruncate") ? -error_ : System::ftruncate(fd, size);
  }
  int seal_size(int fd) noexcept override {
    return fails("seal_size") ? -error_ : System::seal_size(fd);
  }
  int fallocate(int fd, std::size_t offset, std::size_t size) noexcept override {
    return fails("fallocate") ? -error_ : System::fallocate(fd, offset, size);
  }
  int mmap(void* hint, std::size_t size, int protection, int flags, int fd, std::size_t offset,
           void** address) noexcept override {
    return fails("mmap") ? -error_
                         : System::mmap(hint, size, protection, flags, fd, offset, address);
  }
  int pidfd_open(int pid) noexcept override {
    return fails("pidfd_open") ? -error_ : System::pidfd_open(pid);
  }
  int random_bytes(std::span<std::byte> out) noexcept override {
    return fails("random_bytes") ? -error_ : System::random_bytes(out);
  }

 private:
  bool fails(std::string_view call) const { return call == call_; }
  std::string call_;
  int error_ = 0;
};

} // namespace whorl
