#pragma once

#include <cstddef>

#include "base/status.h"
#include "gpu/memory_kind.h"

namespace whorl {

/// Returns the kind of memory at `pointer` and its device, see gpu::place_of(). Any thread.
inline gpu::MemoryPlace place_of_pointer(const void* pointer) noexcept {
  return gpu::place_of(pointer);
}

/// Returns whether the driver knows this memory, as device memory or as pinned or managed memory of
/// the host. Any thread.
inline bool known_to_device(const void* pointer) noexcept {
  return place_of_pointer(pointer).kind != gpu::MemoryKind::kHost;
}

/// Returns the number of the device whose context is current in the calling thread; −1 if there is
/// none.
int current_device() noexcept;

/// Allocates uninitialised memory of the device whose context is current in the calling thread. The
/// memory can be exported by CUDA IPC. Any thread.
Result<void*> device_alloc(std::size_t bytes);
/// Returns whether `pointer` comes from device_alloc() and has not been freed.
bool is_device_alloc(const void* pointer) noexcept;
/// Frees memory of device_alloc(), whichever context is current. Returns an error for any other
/// pointer.
Status device_free(void* pointer);

} // namespace whorl
