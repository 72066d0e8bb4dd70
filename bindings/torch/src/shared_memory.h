#pragma once

#include <ATen/ATen.h>

#include <cstddef>

namespace whorl_torch {

// Tensors in memory that the other ranks of the host can map (whorlMemAlloc), so that operations on
// them need no staging copies. From the first begin_shared_memory() on, an allocator stands in
// front of torch's own for the CPU. While there have been more calls of begin_shared_memory() than
// of end_shared_memory(), it serves large allocations of any thread; all others, and those for
// which the heap has no room, it passes on. Memory of a tensor that dies is kept for the next
// tensor. A child of fork() allocates ordinary memory and leaves inherited memory alone, unless its
// parent had no such memory.

/// Makes large tensors be allocated in shared memory, until end_shared_memory().
void begin_shared_memory();
/// Ends one begin_shared_memory().
void end_shared_memory();

struct SharedMemoryUse {
  std::size_t in_tensors; ///< bytes that tensors occupy
  std::size_t kept;       ///< bytes that are kept for later tensors
};
/// Returns how many bytes of shared memory are in use.
SharedMemoryUse shared_memory_use();
/// Returns whether the memory of a tensor is shared memory.
bool in_shared_memory(const at::Tensor& tensor);

} // namespace whorl_torch
