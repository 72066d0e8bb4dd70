// Virtual memory management of the pretended driver. Physical memory is a file, and its descriptors
// for other processes are those of the file. A handle is a small number, reused as soon as it is
// free, and addresses keep their buffer id whatever is mapped to them. Kernels and copies, too,
// cannot access memory that has not been made accessible. fake_cuda_allow_mappings(n) makes all
// calls of cuMemMap() after the next n fail; −1: none.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "tests/support/fake_cuda/contexts.h"
#include "tests/support/fake_cuda/device.h"
#include "tests/support/fake_cuda/fault.h"
#include "tests/support/fake_cuda/lock.h"

#pragma GCC visibility push(default)

namespace fake_cuda {
namespace {

constexpr std::size_t kGranularity = 65536;
constexpr std::size_t kHostPage = 4096;
const std::string kName = "fake physical memory of device ";

struct Physical {
  int fd = -1;
  std::size_t bytes = 0;
  int device = 0;
  CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE;
  int references = 0, mappings = 0;
};
struct Mapping {
  std::size_t bytes;
  CUmemGenericAllocationHandle handle;
};
struct Reservation {
  std::size_t bytes;
  std::byte* alias;           ///< address of the mappings for the driver
  std::byte *memory, *inside; ///< begin of the mmap(), and of the first whole unit
  unsigned long long id;
};

struct Virtual {
  std::mutex mutex;
  std::map<CUmemGenericAllocationHandle, Physical> physical;
  std::map<CUdeviceptr, Reservation> reservations;
  std::map<CUdeviceptr, Mapping> mappings;
  unsigned long long ids_made = 1ULL << 40; ///< differ from the ids of allocations
};
Virtual& all() {
  static Virtual& instance = *new Virtual;
  return instance;
}

std::atomic<long> mappings_allowed{-1};

bool whole(std::size_t size) { return size > 0 && size % kGranularity == 0; }

/// Returns the number of the first device, in a numbering of all processes like that of UUIDs.
int first_device() {
  const char* const text = std::getenv("FAKE_CUDA_FIRST_DEVICE");
  return text == nullptr ? 0 : std::atoi(text);
}

// The caller of the following functions holds the mutex.

CUmemGenericAllocationHandle add(const Physical& physical) {
  CUmemGenericAllocationHandle handle = 1;
  while (all().physical.contains(handle)) ++handle;
  all().physical[handle] = physical;
  return handle;
}

void drop(CUmemGenericAllocationHandle handle) {
  Physical& physical = all().physical.at(handle);
  if (physical.references > 0 || physical.mappings > 0) return;
  close(physical.fd);
  all().physical.erase(handle);
}

/// Returns the reservation that contains the range; nullptr: none.
const std::pair<const CUdeviceptr, Reservation>* reservation_of(CUdeviceptr begin,
                                                                std::size_t bytes) {
  auto after = all().reservations.upper_bound(begin);
  if (after == all().reservations.begin()) return nullptr;
  const auto& found = *--after;
  const bool inside = begin - found.first < found.second.bytes &&
                      bytes <= found.second.bytes - (begin - found.first);
  return inside ? &found : nullptr;
}

/// Returns whether a range consists of whole mappings without a gap.
bool whole_mappings(CUdeviceptr begin, std::size_t bytes) {
  const CUdeviceptr end = begin + bytes;
  while (begin < end) {
    const auto found = all().mappings.find(begin);
    if (found == all().mappings.end()) return false;
    begin += found->second.bytes;
  }
  return bytes > 0 && begin == end;
}

std::byte* alias_of(CUdeviceptr address) {
  const auto* const reservation = reservation_of(address, 1);
  return reservation->second.alias + (address - reservation->first);
}

/// Reserves address space that begins at a whole unit.
std::byte* reserve(std::size_t bytes, std::byte** memory) {
  void* const space = mmap(nullptr, bytes + kGranularity, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return nullptr;
  *memory = static_cast<std::byte*>(space);
  const auto address = reinterpret_cast<std::uintptr_t>(space);
  return *memory + (kGranularity - address % kGranularity) % kGranularity;
}

} // namespace
} // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

CUresult cuMemGetAllocationGranularity(std::size_t* granularity, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  const DriverLock inside;
  count_call_that_may_wait();
  if (lost()) return kFault;
  if (!whole(size) || flags != 0 || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (prop->location.id < 0 || prop->location.id >= devices()) return CUDA_ERROR_INVALID_DEVICE;
  if ((prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const std::string name = kName + std::to_string(prop->location.id + first_device());
  const int fd = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(all().mutex);
  *handle = add({.fd = fd,
                 .bytes = size,
                 .device = prop->location.id,
                 .types = prop->requestedHandleTypes,
                 .references = 1});
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const DriverLock inside;
  if (lost()) return kFault;
  const std::lock_guard lock(all().mutex);
  const auto found = all().physical.find(handle);
  if (found == all().physical.end() || found->second.references == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  --found->second.references;
  drop(handle);
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  const DriverLock inside;
  if (lost()) return kFault;
  const auto wanted = reinterpret_cast<CUdeviceptr>(address);
  const std::lock_guard lock(all().mutex);
  auto after = all().mappings.upper_bound(wanted);
  if (after == all().mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
  const auto& [begin, mapping] = *--after;
  if (wanted - begin >= mapping.bytes) return CUDA_ERROR_INVALID_VALUE;
  ++all().physical.at(mapping.handle).references;
  *handle = mapping.handle;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  const DriverLock inside;
  if (lost()) return kFault;
  const std::lock_guard lock(all().mutex);
  const auto found = all().physical.find(handle);
  if (found == all().physical.end()) return CUDA_ERROR_INVALID_VALUE;
  std::memset(prop, 0, sizeof *prop);
  prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop->requestedHandleTypes = found->second.types;
  prop->location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = found->second.device};
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  const DriverLock inside;
  if (lost()) return kFault;
  const std::lock_guard lock(all().mutex);
  const auto found = all().physical.find(handle);
  if (found == all().physical.end() || found->second.references == 0 || flags != 0 ||
      type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || (found->second.types & type) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = fcntl(found->second.fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(shareable) = fd;
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) {
  const DriverLock inside;
  if (lost()) return kFault;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  if (ipc_is_refused()) return CUDA_ERROR_INVALID_VALUE;
  const int given = static_cast<int>(reinterpret_cast<std::intptr_t>(shareable));
  char target[256] = {};
  const std::string path = "/proc/self/fd/" + std::to_string(given);
  struct stat file {};
  const std::string begin = "/memfd:" + kName;
  if (readlink(path.c_str(), target, sizeof target - 1) < 0 ||
      std::strncmp(target, begin.c_str(), begin.size()) != 0 || fstat(given, &file) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = fcntl(given, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const std::lock_guard lock(all().mutex);
  *handle = add({.fd = fd,
                 .bytes = static_cast<std::size_t>(file.st_size),
                 .device = std::atoi(target + begin.size()) - first_device(),
                 .types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                 .references = 1});
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* begin, std::size_t size, std::size_t alignment,
                             CUdeviceptr, unsigned long long flags) {
  const DriverLock inside;
  if (lost()) return kFault;
  if (size == 0 || size % kHostPage != 0 || (alignment & (alignment - 1)) != 0 ||
      alignment > kGranularity || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Reservation made{.bytes = size, .alias = nullptr, .memory = nullptr, .inside = nullptr, .id = 0};
  const std::byte* const outside = reserve(size, &made.memory);
  made.alias = reserve(size, &made.inside);
  if (outside == nullptr || made.alias == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *begin = reinterpret_cast<CUdeviceptr>(outside);
  const std::lock_guard lock(all().mutex);
  made.id = ++all().ids_made;
  all().reservations[*begin] = made;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr begin, std::size_t size) {
  const DriverLock inside;
  if (lost()) return kFault;
  const std::lock_guard lock(all().mutex);
  const auto found = all().reservations.find(begin);
  if (found == all().reservations.end() || found->second.bytes != size) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto mapped = all().mappings.lower_bound(begin);
  if (mapped != all().mappings.end() && mapped->first < begin + size) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  munmap(found->second.memory, size + kGranularity);
  munmap(found->second.inside, size + kGranularity);
  all().reservations.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr begin, std::size_t size, std::size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const DriverLock inside;
  count_call_that_may_wait();
  if (lost()) return kFault;
  long left = mappings_allowed;
  while (left > 0 && !mappings_allowed.compare_exchange_weak(left, left - 1)) continue;
  if (left == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(all().mutex);
  const auto physical = all().physical.find(handle);
  const auto* const reservation = reservation_of(begin, size);
  if (reservation == nullptr || !whole(size) || begin % kGranularity != 0 || offset != 0 ||
      flags != 0 || physical == all().physical.end() || physical->second.references == 0 ||
      size > physical->second.bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto next = all().mappings.lower_bound(begin);
  if (next != all().mappings.end() && next->first < begin + size) return CUDA_ERROR_INVALID_VALUE;
  if (next != all().mappings.begin() && (--next)->first + next->second.bytes > begin) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::byte* const alias = alias_of(begin);
  if (mmap(alias, size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->second.fd, 0) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++physical->second.mappings;
  all().mappings[begin] = {size, handle};
  Memory::all().add_mapping({.begin = static_cast<std::uintptr_t>(begin),
                             .bytes = size,
                             .alias = alias,
                             .type = CU_MEMORYTYPE_DEVICE,
                             .device = physical->second.device,
                             .id = reservation->second.id,
                             .pool = true,
                             .reserved = static_cast<std::uintptr_t>(reservation->first),
                             .reservation = reservation->second.bytes});
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr begin, std::size_t size, const CUmemAccessDesc* access,
                        std::size_t count) {
  const DriverLock inside;
  count_call_that_may_wait();
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::lock_guard lock(all().mutex);
  if (!whole_mappings(begin, size) || count != 1 ||
      access->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (access->location.id < 0 || access->location.id >= devices()) return CUDA_ERROR_INVALID_DEVICE;
  mprotect(alias_of(begin), size, PROT_READ | PROT_WRITE);
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr begin, std::size_t size) {
  const DriverLock inside;
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  synchronize_implicitly();
  const std::lock_guard lock(all().mutex);
  if (!whole_mappings(begin, size)) return CUDA_ERROR_INVALID_VALUE;
  mmap(alias_of(begin), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
       -1, 0);
  for (const CUdeviceptr end = begin + size; begin < end;) {
    const auto found = all().mappings.find(begin);
    const Mapping mapping = found->second;
    all().mappings.erase(found);
    Memory::all().remove_mapping(static_cast<std::uintptr_t>(begin));
    --all().physical.at(mapping.handle).mappings;
    drop(mapping.handle);
    begin += mapping.bytes;
  }
  return CUDA_SUCCESS;
}

void fake_cuda_allow_mappings(long n) { mappings_allowed = n; }
long fake_cuda_virtual_memory() {
  const std::lock_guard lock(all().mutex);
  return static_cast<long>(all().physical.size() + all().reservations.size() +
                           all().mappings.size());
}

} // extern "C"
