#include "gpu/peer_memory.h"

#include <algorithm>
#include <cstring>

#include "gpu/driver.h"

namespace whorl::gpu {
namespace {

/// Bit in the ids of runs; the driver's ids are small.
constexpr std::uint64_t kOfRun = std::uint64_t{1} << 63;

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
  if (driver()->cuPointerGetAttributes(4, attributes, values, address) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  if (shareable == 0) return find_run(address, bytes);
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
  if (known_.size() >= max_known_) known_.clear(); // another query costs little
  known_[begin] = {id, memory.handle};
  return memory;
}

/// Finds a run, which keeps its id as long as its mappings are the same. Memory that the other
/// process has mapped is held, so that no other memory gets its handle meanwhile.
std::optional<SharedMemory> MemoryExports::find_run(CUdeviceptr buffer, std::size_t bytes) {
  std::vector<MemoryMapping> mappings = mappings_of(buffer, bytes);
  if (mappings.empty()) return std::nullopt;
  SharedMemory memory{.address = buffer,
                      .bytes = bytes,
                      .allocation = mappings.front().begin,
                      .allocated = mappings.back().end() - mappings.front().begin,
                      .mappings = mappings.size()};
  const std::pair key(memory.allocation, mappings.size());
  const auto known = runs_.find(key);
  if (known != runs_.end() && known->second.mappings == mappings) {
    known->second.found = ++finds_;
    memory.id = known->second.id;
    return memory;
  }
  const auto physical = hold_mappings(memory.allocation, memory.allocated);
  if (!physical.ok() || !can_be_exported(*physical)) return std::nullopt;
  if (runs_.size() >= max_known_) runs_.clear();
  memory.id = kOfRun | ++runs_made_;
  runs_[key] = {.id = memory.id, .mappings = std::move(mappings), .found = ++finds_};
  return memory;
}

Result<std::shared_ptr<const PhysicalMemory>> MemoryExports::hold(const SharedMemory& run) {
  const auto changed = [] {
    return Status::error(Code::kInvalidUsage,
                         "a buffer has been mapped anew while an operation on it was under way");
  };
  auto physical = hold_mappings(run.allocation, run.allocated);
  if (!physical.ok()) return physical.status();
  if (physical->parts().size() != run.mappings) return changed();
  Run& known = runs_[{run.allocation, run.mappings}];
  if (known.mappings.empty()) { // forgotten since find(), so its id was given to no other memory
    known = {.id = run.id, .mappings = mappings_of(run.allocation, run.allocated), .found = finds_};
  }
  if (known.id != run.id || known.mappings.size() != run.mappings) return changed();
  for (std::size_t i = 0; i < run.mappings; ++i) {
    MemoryMapping& mapping = known.mappings[i];
    const PhysicalMemory::Part& part = physical->parts()[i];
    // A handle is valid only while a reference is held, which may be from now on.
    if (known.held == nullptr) mapping.handle = part.handle;
    if (mapping.handle != part.handle || mapping.bytes != part.bytes) return changed();
  }
  if (known.held == nullptr) {
    known.held = std::make_shared<const PhysicalMemory>(*std::move(physical));
  }
  return known.held;
}

void MemoryExports::trim() {
  const auto held = [](const auto& entry) { return entry.second.held != nullptr; };
  auto surplus =
      std::count_if(runs_.begin(), runs_.end(), held) - static_cast<std::ptrdiff_t>(kMaxHeld);
  for (; surplus > 0; --surplus) {
    auto oldest = runs_.end();
    for (auto run = runs_.begin(); run != runs_.end(); ++run) {
      if (!held(*run)) continue;
      if (oldest == runs_.end() || run->second.found < oldest->second.found) oldest = run;
    }
    runs_.erase(oldest);
  }
}

bool MemoryImports::overlap(const Mapping& old, const SharedMemory& memory,
                            std::uint64_t block) noexcept {
  if (old.run && memory.mappings > 0) { // a run and an allocation may both be there
    return old.allocation == memory.allocation && old.allocated == memory.allocated;
  }
  return old.allocation / block <= (memory.allocation + memory.allocated - 1) / block &&
         memory.allocation / block <= (old.allocation + old.allocated - 1) / block;
}

MemoryImports::MemoryImports(CUcontext context) : context_(context), context_id_(id_of(context)) {}

MemoryImports::~MemoryImports() {
  if (!is_same_context(context_, context_id_)) return; // runs unmap themselves
  const ContextGuard guard(context_);
  while (!mapped_.empty()) retire(mapped_.begin());
  release(UINT64_MAX);
  close_retired(UINT64_MAX);
}

void MemoryImports::make_room(int rank, const SharedMemory& memory,
                              std::span<const std::uint64_t> keep) {
  // An older allocation at these addresses has been freed: graphs that use it are not launched any
  // more. `memory` itself may still be open, for a graph; then the driver only counts. Runs block
  // no other memory, and their ids may change although they stay.
  const auto let_go = [&](Mapping& old) {
    if (!old.run && old.id != memory.id && overlap(old, memory, 1)) old.pinned = 0;
  };
  for (Mapping& old : retired_) {
    if (old.rank == rank) let_go(old);
  }
  for (auto other = mapped_.lower_bound({rank, 0});
       other != mapped_.end() && other->first.first == rank;) {
    const auto next = std::next(other);
    const std::uint64_t id = other->first.second;
    const bool kept = std::find(keep.begin(), keep.end(), id) != keep.end();
    const bool upon = overlap(other->second, memory, 1);
    let_go(other->second);
    // Ids grow. A younger id than `memory` is no remainder of what was there before it.
    const bool suspect = id < memory.id && memory.mappings == 0 && !kept &&
                         !is_pinned(other->second) && overlap(other->second, memory, kDriverBlock);
    if (suspect || upon) retire(other);
    other = next;
  }
}

std::uint64_t MemoryImports::in_the_way(int rank, const SharedMemory* memory) const noexcept {
  std::uint64_t last = 0;
  for (const Mapping& old : retired_) {
    if (old.rank != rank || old.run || is_pinned(old)) continue;
    if (memory == nullptr || overlap(old, *memory, kDriverBlock)) last = std::max(last, old.used);
  }
  return last;
}

void MemoryImports::unpin(int rank, const SharedMemory& memory) noexcept {
  for (Mapping& old : retired_) {
    if (old.rank == rank && !old.run && overlap(old, memory, kDriverBlock)) old.pinned = 0;
  }
}

Status MemoryImports::open(int rank, const SharedMemory& memory, std::uint64_t epoch, bool& busy) {
  Mapping mapping{.rank = rank,
                  .id = memory.id,
                  .base = 0,
                  .allocation = memory.allocation,
                  .allocated = memory.allocated,
                  .used = epoch};
  CUipcMemHandle handle;
  std::memcpy(&handle, memory.handle.data(), sizeof handle);
  const CUresult result =
      driver()->cuIpcOpenMemHandle(&mapping.base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  busy = result == CUDA_ERROR_ALREADY_MAPPED;
  WHORL_TRY(check(result, "cuIpcOpenMemHandle"));
  mapped_[{rank, memory.id}] = std::move(mapping);
  return {};
}

Status MemoryImports::open_run(int rank, const SharedMemory& run, std::uint64_t epoch,
                               const PhysicalMemory& physical) {
  auto mapped = MappedMemory::map(physical);
  if (!mapped.ok()) return mapped.status();
  mapped_[{rank, run.id}] = {.rank = rank,
                             .id = run.id,
                             .base = mapped->base(),
                             .allocation = run.allocation,
                             .allocated = run.allocated,
                             .used = epoch,
                             .run = true,
                             .mapped = *std::move(mapped)};
  return {};
}

std::byte* MemoryImports::use(int rank, const SharedMemory& memory, std::uint64_t epoch) {
  Mapping& mapping = mapped_.at({rank, memory.id});
  mapping.used = epoch;
  return reinterpret_cast<std::byte*>(mapping.base + (memory.address - memory.allocation));
}

void MemoryImports::pin(int rank, const SharedMemory& memory, std::uint64_t captured) {
  mapped_.at({rank, memory.id}).pinned = captured;
}

void MemoryImports::trim() {
  for (auto first = mapped_.begin(); first != mapped_.end();) {
    const int rank = first->first.first;
    retire_oldest(rank);
    first = mapped_.lower_bound({rank + 1, 0});
  }
}

/// Retires the oldest mappings of a rank until there are not too many.
void MemoryImports::retire_oldest(int rank) {
  while (true) {
    const auto end = mapped_.lower_bound({rank + 1, 0});
    auto oldest = end;
    std::size_t count = 0;
    for (auto one = mapped_.lower_bound({rank, 0}); one != end; ++one) {
      if (is_pinned(one->second)) continue;
      ++count;
      if (oldest == end || one->second.used < oldest->second.used) oldest = one;
    }
    if (count <= kMaxMapped) return;
    retire(oldest);
  }
}

void MemoryImports::retire(std::map<Key, Mapping>::iterator mapping) {
  retired_.push_back(std::move(mapping->second));
  mapped_.erase(mapping);
}

void MemoryImports::close_retired(std::uint64_t passed) {
  std::erase_if(retired_, [&](const Mapping& mapping) {
    if (mapping.used > passed || is_pinned(mapping)) return false;
    // An error means that the context is gone, and all mappings with it.
    if (!mapping.run) static_cast<void>(driver()->cuIpcCloseMemHandle(mapping.base));
    return true; // a run unmaps itself
  });
}

} // namespace whorl::gpu
