#pragma once

#include <ATen/ATen.h>

#include <cstddef>

namespace whorl_torch {

/// Tensors in memory that the other ranks of the host can map (whorlMemAlloc), so that operations
/// on them move without staging copies. Once asked for, an allocator stands in front of torch's own
/// for the CPU and takes, while the count of begin() exceeds that of end(), what is large enough,
/// in any thread; everything else, and what the heap has no room for, is passed on. Memory returns
/// to it whenever its tensor dies, and is kept for the next one. A child of fork() allocates as if
/// there were none, and leaves inherited memory alone; unless its parent had no such memory.
void begin_shared_memory();
void end_shared_memory();

struct SharedMemoryUse {
  std::size_t in_tensors; ///< bytes
  std::size_t kept;       ///< bytes, for later
};
SharedMemoryUse shared_memory_use();
/// Whether the tensor's memory is from there.
bool in_shared_memory(const at::Tensor& tensor);

} // namespace whorl_torch
