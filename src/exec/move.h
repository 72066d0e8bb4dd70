#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/reduce.h"

namespace whorl {

/// Destination of data.
struct Target {
  std::byte* data = nullptr;
  bool nontemporal = false; ///< whether stores bypass the caches
};

/// Place of a source, as far as it matters to copies.
enum class SourceIn : std::uint8_t {
  kMemory,       ///< memory, or caches of this core
  kAnotherCache, ///< cache of another core, which will write the source again
};

/// Kernels of one operation.
struct MoveKernels {
  ReduceKernel reduce = nullptr;         ///< unused where nothing is reduced
  CopyKernel nontemporal_copy = nullptr; ///< null: no target may bypass the caches
  CopyKernel vector_copy = nullptr;      ///< copy of SourceIn::kAnotherCache; null: memcpy()
  std::size_t element_size = 1;
  Averaging averaging; ///< averaging of steps with kFinal
  /// Kernel that multiplies what is read from the input by `factor` and rounds it to the type, or
  /// null.
  ScaleKernel scale = nullptr;
  Element factor;
};

/// Returns the kernels of a reduction on `ranks` ranks. `at_once`: the algorithm has no partial
/// results (Algorithm::at_once); otherwise the inputs of an average of floating-point numbers are
/// scaled.
MoveKernels kernels_of(DataType type, ReduceOp op, int ranks, bool at_once, Simd simd) noexcept;

namespace detail {
void reduce_into_all(const MoveKernels& kernels, std::span<const void*> sources,
                     std::span<const Target> targets, std::size_t bytes,
                     Averaging averaging) noexcept;
void copy_into_all(const MoveKernels& kernels, const std::byte* source,
                   std::span<const Target> targets, std::size_t bytes, SourceIn place) noexcept;

inline void reduce(const MoveKernels& kernels, std::span<const void* const> sources, std::byte* to,
                   std::size_t bytes, Averaging averaging) noexcept {
  // Element sizes are powers of two; a division would take longer than the rest.
  kernels.reduce(sources, to, bytes >> std::countr_zero(kernels.element_size), averaging);
}
inline void copy(const MoveKernels& kernels, const std::byte* source, const Target& target,
                 std::size_t bytes, SourceIn place = SourceIn::kMemory) noexcept {
  if (target.data == source) return;
  if (target.nontemporal) {
    kernels.nontemporal_copy(target.data, source, bytes);
  } else if (place == SourceIn::kAnotherCache && kernels.vector_copy != nullptr) {
    kernels.vector_copy(target.data, source, bytes);
  } else {
    std::memcpy(target.data, source, bytes);
  }
}
} // namespace detail

/// Combines the sources from left to right into every target, in one pass. A target may be one of
/// the sources. The pointers in `sources` are changed.
inline void reduce_into(const MoveKernels& kernels, std::span<const void*> sources,
                        std::span<const Target> targets, std::size_t bytes,
                        Averaging averaging) noexcept {
  if (targets.size() == 1 && !targets[0].nontemporal) {
    return detail::reduce(kernels, sources, targets[0].data, bytes, averaging);
  }
  detail::reduce_into_all(kernels, sources, targets, bytes, averaging);
}
/// Copies the source into every target, in one pass; not where the target is the source.
inline void copy_into(const MoveKernels& kernels, const std::byte* source,
                      std::span<const Target> targets, std::size_t bytes,
                      SourceIn place = SourceIn::kMemory) noexcept {
  if (targets.size() == 1) return detail::copy(kernels, source, targets[0], bytes, place);
  detail::copy_into_all(kernels, source, targets, bytes, place);
}

/// Scales source number `input`, then does what reduce_into() does.
void reduce_scaled_into(const MoveKernels& kernels, std::span<const void*> sources,
                        std::size_t input, std::span<const Target> targets, std::size_t bytes,
                        Averaging averaging) noexcept;
/// Scales the source, then copies it into every target; the source may be a target.
void copy_scaled_into(const MoveKernels& kernels, const std::byte* source,
                      std::span<const Target> targets, std::size_t bytes) noexcept;

} // namespace whorl
