#include "gpu/peer_memory.h"

#include <algorithm>
#include <cstring>

#include "gpu/driver.h"

namespace whorl::gpu {
namespace {

/// Whether an allocation that is mapped shares a block of so many bytes with `memory`.
template <class Mapping>
bool overlap(const Mapping& old, const SharedMemory& memory, std::uint64_t block) noexcept {
  return old.allocation / block <= (memory.allocation + memory.allocated - 1) / block &&
         memory.allocation / block <= (old.allocation + old.allocated - 1) / block;
}

} // namespace

std::optional<SharedMemory> MemoryExports::find(const void* buffer, std::size_t bytes) {
  CUdeviceptr begin = 0;
  std::size_t size = 0;
  unsigned long long id = 0;
  std::uint64_t shareable = 0; // a bool of unknown width
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
      CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  void* values[] = {&begin, &size, &id, &shareable};
  const auto address = reinterpret_cast<CUdeviceptr>(buffer);
  if (driver()->cuPointerGetAttributes(4, attributes, values, address) != CUDA_SUCCESS ||
      shareable == 0) {
    return std::nullopt;
  }
  SharedMemory memory{
      .address = address, .bytes = bytes, .allocation = begin, .allocated = size, .id = id};
  if (!memory.valid(bytes)) return std::nullopt;
  const auto known = known_.find(begin);
  if (known != known_.end() && known->second.id == id) {
    memory.handle = known->second.handle;
    return memory;
  }
  CUipcMemHandle handle;
  if (driver()->cuIpcGetMemHandle(&handle, begin) != CUDA_SUCCESS) return std::nullopt;
  std::memcpy(memory.handle.data(), &handle, sizeof handle);
  if (known_.size() >= most_known_) known_.clear(); // to ask again costs little
  known_[begin] = {id, memory.handle};
  return memory;
}

MemoryImports::~MemoryImports() {
  const ContextGuard guard(context_);
  forget_all();
  close_retired(UINT64_MAX);
}

void MemoryImports::forget_all() {
  while (!mapped_.empty()) retire(mapped_.begin());
}

void MemoryImports::make_room(int rank, const SharedMemory& memory,
                              std::span<const std::uint64_t> keep) {
  for (auto other = mapped_.lower_bound({rank, 0});
       other != mapped_.end() && other->first.first == rank;) {
    const auto next = std::next(other);
    const std::uint64_t id = other->first.second;
    const bool kept = std::find(keep.begin(), keep.end(), id) != keep.end();
    // Ids grow. What is younger than `memory` is no trace of what was there before it.
    const bool suspect = id < memory.id && !kept && overlap(other->second, memory, kDriverBlock);
    if (suspect || overlap(other->second, memory, 1)) retire(other);
    other = next;
  }
}

std::uint64_t MemoryImports::in_the_way(int rank, const SharedMemory* memory) const noexcept {
  std::uint64_t last = 0;
  for (const Mapping& old : retired_) {
    if (old.rank != rank) continue;
    if (memory == nullptr || overlap(old, *memory, kDriverBlock)) last = std::max(last, old.used);
  }
  return last;
}

Status MemoryImports::open(int rank, const SharedMemory& memory, std::uint64_t epoch, bool here,
                           bool& busy) {
  busy = false;
  Mapping mapping{.rank = rank,
                  .base = memory.allocation,
                  .allocation = memory.allocation,
                  .allocated = memory.allocated,
                  .used = epoch,
                  .here = here};
  if (!here) {
    CUipcMemHandle handle;
    std::memcpy(&handle, memory.handle.data(), sizeof handle);
    const CUresult result =
        driver()->cuIpcOpenMemHandle(&mapping.base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    busy = result == CUDA_ERROR_ALREADY_MAPPED;
    WHORL_TRY(check(result, "cuIpcOpenMemHandle"));
  }
  mapped_[{rank, memory.id}] = mapping;
  return {};
}

void MemoryImports::forget(int rank, const SharedMemory& memory) {
  const auto found = mapped_.find({rank, memory.id});
  if (found == mapped_.end()) return;
  found->second.used = 0;
  retire(found);
  close_retired(0);
}

std::byte* MemoryImports::use(int rank, const SharedMemory& memory, std::uint64_t epoch) {
  Mapping& mapping = mapped_.at({rank, memory.id});
  mapping.used = epoch;
  return reinterpret_cast<std::byte*>(mapping.base + (memory.address - memory.allocation));
}

void MemoryImports::trim(std::uint64_t passed) {
  for (auto first = mapped_.begin(); first != mapped_.end();) {
    const int rank = first->first.first;
    retire_oldest(rank);
    first = mapped_.lower_bound({rank + 1, 0});
  }
  close_retired(passed);
}

/// As long as there are too many of a rank.
void MemoryImports::retire_oldest(int rank) {
  while (true) {
    const auto begin = mapped_.lower_bound({rank, 0});
    const auto end = mapped_.lower_bound({rank + 1, 0});
    if (static_cast<std::size_t>(std::distance(begin, end)) <= kMostMapped) return;
    retire(std::min_element(
        begin, end, [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  }
}

void MemoryImports::retire(std::map<Key, Mapping>::iterator mapping) {
  if (!mapping->second.here) retired_.push_back(mapping->second);
  mapped_.erase(mapping);
}

void MemoryImports::close_retired(std::uint64_t passed) {
  std::erase_if(retired_, [&](const Mapping& mapping) {
    if (mapping.used > passed) return false;
    // An error means that the context has gone, and all mappings with it.
    static_cast<void>(driver()->cuIpcCloseMemHandle(mapping.base));
    return true;
  });
}

} // namespace whorl::gpu
