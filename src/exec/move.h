#pragma once

#include <cstddef>
#include <span>

#include "kernels/reduce.h"

namespace whorl {

/// Where a piece of data goes.
struct Target {
  std::byte* data = nullptr;
  bool stream = false; ///< with stores that bypass the caches
};

/// The kernels of one operation.
struct MoveKernels {
  ReduceKernel reduce = nullptr;    ///< unused where nothing is reduced
  StreamCopy stream_copy = nullptr; ///< null: no target is streamed
  std::size_t element_size = 1;
};

/// Combines the sources from left to right into every target, in one pass. A target may be one of
/// the sources. The pointers in `sources` are changed.
void reduce_into(const MoveKernels& kernels, std::span<const void*> sources,
                 std::span<const Target> targets, std::size_t bytes, int divisor) noexcept;
/// Copies the source into every target, in one pass; not where the target is the source.
void copy_into(const MoveKernels& kernels, const std::byte* source, std::span<const Target> targets,
               std::size_t bytes) noexcept;

} // namespace whorl
