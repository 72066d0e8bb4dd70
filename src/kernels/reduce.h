#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/types.h"

namespace whorl {

/// destinations[*][i] = finish(sources[0][i] ⊕ sources[1][i] ⊕ …), combined from left to right.
///
/// At least one source and one destination, any number of them. A destination may be the same
/// memory as a source, but not overlap one otherwise. Pointers need no alignment. Sum, product and
/// average of 16- and 8-bit floating types are accumulated in float32 and rounded once, to nearest
/// even; results are the same bits on every instruction set. Integers wrap.
/// `divisor` divides the result before it is rounded (for kAvg where all contributions are
/// present); 1 for none. Integer division rounds towards zero.
using ReduceKernel = void (*)(std::span<const void* const> sources,
                              std::span<void* const> destinations, std::size_t count,
                              int divisor) noexcept;

/// destination[i] = source[i]·*scalar, in float32 for 16- and 8-bit types; may be in place.
using ScaleKernel = void (*)(const void* source, void* destination, std::size_t count,
                             const void* scalar) noexcept;

/// Instruction sets that kernels are compiled for.
enum class Simd : std::uint8_t { kScalar, kAvx2, kAvx512, kNeon };
std::string_view name_of(Simd simd) noexcept;
/// Whether this build has kernels for it and this processor can run them.
bool supported(Simd simd) noexcept;
/// The best supported one, or the one that WHORL_SIMD names if supported. Decided once.
Simd default_simd() noexcept;

ReduceKernel reduce_kernel(DataType type, ReduceOp op, Simd simd) noexcept;
ScaleKernel scale_kernel(DataType type, Simd simd) noexcept;

} // namespace whorl
