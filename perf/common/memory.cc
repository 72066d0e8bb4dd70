#include "perf/common/memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "perf/common/device.h"

namespace perf {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kGuardBytes = 256; // at most one page
constexpr auto kGuardByte = std::byte{0xa5};

std::size_t read_number(const char* path) {
  std::ifstream file(path);
  std::size_t number = 0;
  return file >> number ? number : SIZE_MAX; // "max" is no number
}

std::size_t changed(const std::byte* guard) {
  return kGuardBytes - static_cast<std::size_t>(std::count(guard, guard + kGuardBytes, kGuardByte));
}

} // namespace

GuardedBuffer::GuardedBuffer(std::size_t bytes, Alloc alloc, Comm comm)
    : total_((bytes + kPage - 1) / kPage * kPage + 2 * kPage), alloc_(alloc), comm_(comm) {
  allocate();
  std::memset(base_, 0, total_); // no page is touched for the first time during a timed operation
}

void GuardedBuffer::allocate() {
  if (alloc_ == Alloc::kWhorl) {
    void* memory = nullptr;
    check(XCCL(MemAlloc)(&memory, total_), nullptr, "MemAlloc");
    base_ = static_cast<std::byte*>(memory);
  } else {
    base_ = static_cast<std::byte*>(std::aligned_alloc(kPage, total_));
    if (base_ == nullptr) {
      throw Failure("Cannot allocate " + std::to_string(total_) +
                    " bytes; lower -e or the number of ranks.");
    }
  }
  data_ = base_ + kPage;
  if (alloc_ == Alloc::kDevice) device_ = Device::driver().allocate(total_) + kPage;
  if (alloc_ == Alloc::kRegistered) {
    check(XCCL(CommRegister)(comm_, base_, total_, &handle_), comm_, "CommRegister");
  }
}

void GuardedBuffer::free() noexcept {
  if (base_ == nullptr) return;
  if (device_ != nullptr) Device::driver().free(device_ - kPage);
  if (alloc_ == Alloc::kRegistered) (void)XCCL(CommDeregister)(comm_, handle_);
  if (alloc_ == Alloc::kWhorl) {
    (void)XCCL(MemFree)(base_);
  } else {
    std::free(base_);
  }
  base_ = device_ = nullptr;
}

void GuardedBuffer::renew() {
  free();
  allocate();
}

GuardedBuffer::GuardedBuffer(GuardedBuffer&& other) noexcept
    : total_(other.total_),
      base_(std::exchange(other.base_, nullptr)),
      data_(other.data_),
      device_(std::exchange(other.device_, nullptr)),
      used_(other.used_),
      alloc_(other.alloc_),
      comm_(other.comm_),
      handle_(std::exchange(other.handle_, nullptr)) {}

GuardedBuffer::~GuardedBuffer() { free(); }

void GuardedBuffer::arm(std::size_t used) {
  used_ = used;
  std::fill_n(data_ - kGuardBytes, kGuardBytes, kGuardByte);
  std::fill_n(data_ + used, kGuardBytes, kGuardByte);
  if (device_ == nullptr) return;
  const Device& device = Device::driver();
  device.copy(device_ - kGuardBytes, data_ - kGuardBytes, kGuardBytes);
  device.copy(device_ + used, data_ + used, kGuardBytes);
}

void GuardedBuffer::push(std::size_t offset, std::size_t bytes) const {
  if (device_ != nullptr) Device::driver().copy(device_ + offset, data_ + offset, bytes);
}

void GuardedBuffer::pull(std::size_t offset, std::size_t bytes) const {
  if (device_ != nullptr) Device::driver().copy(data_ + offset, device_ + offset, bytes);
}

std::size_t GuardedBuffer::damage() const {
  if (device_ != nullptr) {
    const Device& device = Device::driver();
    device.copy(data_ - kGuardBytes, device_ - kGuardBytes, kGuardBytes);
    device.copy(data_ + used_, device_ + used_, kGuardBytes);
  }
  return changed(data_ - kGuardBytes) + changed(data_ + used_);
}

std::size_t available_memory() {
  std::size_t available = SIZE_MAX;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kib) == 1) available = kib * 1024;
  }
  const std::size_t limit = read_number("/sys/fs/cgroup/memory.max");
  const std::size_t used = read_number("/sys/fs/cgroup/memory.current");
  if (limit != SIZE_MAX && used != SIZE_MAX) {
    available = std::min(available, limit > used ? limit - used : 0);
  }
  return available;
}

std::size_t last_level_cache_bytes() {
  // "32768K"; sysconf() adds up the caches of a package on some processors.
  const std::size_t kib = read_number("/sys/devices/system/cpu/cpu0/cache/index3/size");
  if (kib != SIZE_MAX) return kib << 10;
  long largest = 0;
  for (int name : {_SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL4_CACHE_SIZE}) {
    largest = std::max(largest, sysconf(name));
  }
  return largest > 0 ? static_cast<std::size_t>(largest) : std::size_t{32} << 20;
}

} // namespace perf
