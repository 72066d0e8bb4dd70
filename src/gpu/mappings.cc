#include "gpu/mappings.h"

#include <utility>

#include "gpu/driver.h"

namespace whorl::gpu {
namespace {

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Returns begin and size of the mapping at an address (pointer attributes describe the reserved
/// addresses instead). Bytes are 0 if there is none.
MemoryMapping extent_at(CUdeviceptr address) {
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  if (driver()->cuMemGetAddressRange(&begin, &bytes, address) != CUDA_SUCCESS || address < begin ||
      address - begin >= bytes) {
    return {};
  }
  return {.begin = begin, .bytes = bytes};
}

/// Takes a reference to the memory of a mapping, which the caller owns. The driver has one handle
/// for the same memory.
Status retain(MemoryMapping& mapping) {
  WHORL_CUDA_TRY(
      cuMemRetainAllocationHandle(&mapping.handle, reinterpret_cast<void*>(mapping.begin)));
  return {};
}

void release(CUmemGenericAllocationHandle handle) noexcept {
  static_cast<void>(driver()->cuMemRelease(handle)); // an error means that the device is lost
}

/// Calls `visit` with each mapping between two addresses and a reference to its memory.
template <class Visit>
Status walk(CUdeviceptr address, CUdeviceptr end, Visit&& visit) {
  for (std::size_t n = 0; address < end; ++n) {
    MemoryMapping mapping = extent_at(address);
    if (mapping.bytes == 0 || n == kMaxMappings || (n > 0 && mapping.begin != address)) {
      return Status::error(Code::kInvalidUsage,
                           "a buffer lies in no mapping of device memory, or in too many");
    }
    WHORL_TRY(retain(mapping));
    visit(mapping);
    address = mapping.end();
  }
  return {};
}

} // namespace

std::vector<MemoryMapping> mappings_of(CUdeviceptr buffer, std::size_t bytes) {
  std::vector<MemoryMapping> mappings;
  const Status status = walk(buffer, buffer + bytes, [&](const MemoryMapping& mapping) {
    release(mapping.handle);
    mappings.push_back(mapping);
  });
  if (!status.ok()) mappings.clear();
  return mappings;
}

bool can_be_exported(const PhysicalMemory& physical) {
  CUdevice device = 0;
  if (driver()->cuCtxGetDevice(&device) != CUDA_SUCCESS) return false;
  for (const PhysicalMemory::Part& part : physical.parts()) {
    CUmemAllocationProp properties{};
    if (driver()->cuMemGetAllocationPropertiesFromHandle(&properties, part.handle) !=
            CUDA_SUCCESS ||
        properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        properties.location.id != device || (properties.requestedHandleTypes & kDescriptor) == 0) {
      return false;
    }
  }
  return true;
}

PhysicalMemory::~PhysicalMemory() {
  for (const Part& part : parts_) release(part.handle);
}

void PhysicalMemory::add(Part part) {
  parts_.push_back(part);
  bytes_ += part.bytes;
}

void PhysicalMemory::swap(PhysicalMemory& other) noexcept {
  parts_.swap(other.parts_);
  std::swap(bytes_, other.bytes_);
}

Status PhysicalMemory::import(const Fd& descriptor, std::uint64_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  void* const number = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor.get()));
  WHORL_CUDA_TRY(cuMemImportFromShareableHandle(&handle, number, kDescriptor));
  add({handle, bytes});
  return {};
}

Result<Fd> PhysicalMemory::descriptor(std::size_t part) const {
  int fd = -1;
  WHORL_CUDA_TRY(cuMemExportToShareableHandle(&fd, parts_[part].handle, kDescriptor, 0));
  return Fd(fd);
}

Result<PhysicalMemory> hold_mappings(std::uint64_t begin, std::uint64_t bytes) {
  PhysicalMemory physical;
  WHORL_TRY(walk(begin, begin + bytes, [&](const MemoryMapping& mapping) {
    physical.add({mapping.handle, mapping.bytes});
  }));
  return physical;
}

Result<MappedMemory> MappedMemory::map(const PhysicalMemory& physical) {
  MappedMemory mapped;
  WHORL_TRY(mapped.map_parts(physical));
  return mapped;
}

Status MappedMemory::map_parts(const PhysicalMemory& physical) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  WHORL_CUDA_TRY(cuCtxGetDevice(&access.location.id));
  const std::uint64_t bytes = physical.bytes();
  WHORL_CUDA_TRY(cuMemAddressReserve(&base_, bytes, 0, 0, 0));
  reserved_ = bytes;
  CUdeviceptr end = base_;
  for (const PhysicalMemory::Part& part : physical.parts()) {
    WHORL_CUDA_TRY(cuMemMap(end, part.bytes, 0, part.handle, 0));
    parts_.push_back(part.bytes);
    end += part.bytes;
  }
  WHORL_CUDA_TRY(cuMemSetAccess(base_, bytes, &access, 1));
  return {};
}

MappedMemory::~MappedMemory() {
  if (reserved_ == 0) return;
  CUdeviceptr begin = base_;
  for (const std::uint64_t bytes : parts_) { // each part is unmapped whole
    static_cast<void>(driver()->cuMemUnmap(begin, bytes));
    begin += bytes;
  }
  static_cast<void>(driver()->cuMemAddressFree(base_, reserved_));
}

void MappedMemory::swap(MappedMemory& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(reserved_, other.reserved_);
  parts_.swap(other.parts_);
}

} // namespace whorl::gpu
