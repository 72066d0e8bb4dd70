#pragma once

#include <cstddef>

#include "base/status.h"

namespace whorl {

/// Whether a device knows this memory, as its own or as pinned or managed memory of the host. Any
/// thread.
bool known_to_device(const void* pointer) noexcept;

/// The number of the device whose context is current in the calling thread; −1 if there is none.
int current_device() noexcept;

/// Memory of the device whose context is current in the calling thread, with contents that nobody
/// has set. It can be exported by CUDA IPC. Any thread.
Result<void*> device_alloc(std::size_t bytes);
/// Whether device_alloc() gave `pointer`, and it has not been freed.
bool is_device_alloc(const void* pointer) noexcept;
/// Frees what device_alloc() gave, in its context, whichever is current. An error if the pointer is
/// none of these.
Status device_free(void* pointer);

} // namespace whorl
