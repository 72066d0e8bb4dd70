#include "base/shm_segment.h"

#include <fmt/core.h>

#include <cerrno>

#include "base/descriptor_error.h"

namespace whorl {
namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

Status failed(const char* what, std::size_t size, int error) {
  return Status::error(Code::kSystemError, fmt::format("cannot {} {} bytes of shared memory: {}",
                                                       what, size, shared_memory_error(error)));
}

} // namespace

std::string shared_memory_error(int error) {
  if (error != -EFBIG) return descriptor_error(error);
  return fmt::format(
      "the limit on the size of files is {} bytes, and holds for memory that is "
      "shared; raise it (ulimit -f)",
      sys().largest_file());
}

ShmSegment& ShmSegment::operator=(ShmSegment&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::move(other.fd_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void ShmSegment::close() noexcept {
  if (data_ != nullptr) sys().munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
  fd_.reset();
}

Status ShmSegment::map(std::size_t size, int protection) {
  void* address = nullptr;
  const int error =
      sys().mmap(nullptr, size, protection, MAP_SHARED | MAP_NORESERVE, fd_.get(), 0, &address);
  if (error == -ENOMEM) {
    const Status status = failed("map", size, error);
    return Status::error(status.code(),
                         status.message() + "; raise the limit on addresses (ulimit -v)");
  }
  if (error < 0) return failed("map", size, error);
  data_ = static_cast<std::byte*>(address);
  size_ = size;
  return {};
}

Result<ShmSegment> ShmSegment::create(const char* name, std::size_t size) {
  ShmSegment segment;
  const int fd = sys().memfd_create(name);
  if (fd < 0) return failed("create", size, fd);
  segment.fd_.reset(fd);
  if (const int error = sys().ftruncate(fd, size); error < 0) return failed("size", size, error);
  if (const int error = sys().seal_size(fd); error < 0) return failed("seal", size, error);
  WHORL_TRY(segment.map(size, kReadWrite));
  return segment;
}

Result<ShmSegment> ShmSegment::open(Fd fd, std::size_t size) {
  return open(std::move(fd), size, kReadWrite);
}

Result<ShmSegment> ShmSegment::open_to_read(Fd fd, std::size_t size) {
  return open(std::move(fd), size, PROT_READ);
}

Result<ShmSegment> ShmSegment::open(Fd fd, std::size_t size, int protection) {
  ShmSegment segment;
  segment.fd_ = std::move(fd);
  const int sealed = sys().size_sealed(segment.fd());
  if (sealed < 0) return failed("check the seal of", size, sealed);
  std::size_t actual = 0;
  const int error = sys().file_size(segment.fd(), &actual);
  if (error < 0) return failed("ask for the size of", size, error);
  if (sealed == 0 || actual < size) {
    return Status::error(
        Code::kInternalError,
        fmt::format("received shared memory of {} bytes that is {}; expected at least {} bytes "
                    "that cannot shrink",
                    actual, sealed != 0 ? "sealed" : "not sealed against shrinking", size));
  }
  WHORL_TRY(segment.map(size, protection));
  return segment;
}

} // namespace whorl
