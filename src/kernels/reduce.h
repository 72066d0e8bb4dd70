#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/types.h"

namespace whorl {

/// Parameters that make an average of the sum of all contributions.
struct Averaging {
  int divisor = 1; ///< divisor of the sum; 1: the sum stays a sum
  /// Power by which the inputs were scaled: the sources are partial sums of inputs that have been
  /// multiplied by 2^-scaled. 0: the sources are all inputs, unscaled; bfloat16, float32 and
  /// float64 are then multiplied by the largest power of two that is not above 1/divisor while they
  /// are summed.
  int scaled = 0;

  constexpr Averaging(int divisor_ = 1, int scaled_ = 0) noexcept // implicit for a divisor
      : divisor(divisor_), scaled(scaled_) {}
};

/// Element of any type.
struct Element {
  alignas(8) std::array<std::byte, 8> bytes{};
};

/// Power of two, 2^-k, by which inputs of a floating type are multiplied before they are summed in
/// several steps to an average of `ranks` inputs: partial sums, each rounded to the type, then stay
/// finite in any order.
struct AverageScale {
  int k;
  Element factor; ///< value of 2^-k
};
AverageScale average_scale(DataType type, int ranks) noexcept;

/// Kernel that computes destination[i] = sources[0][i] ⊕ sources[1][i] ⊕ …, combined from left to
/// right.
///
/// At least one source. The destination may be the same memory as a source, but not overlap one
/// otherwise. Pointers need no alignment. Any thread, any number at a time.
///
/// Integers wrap. Of truth values (kBool) every byte but 0 is true; results are 0 or 1; sum is
/// "or", product is "and". 16- and 8-bit floating types are combined in float32 and rounded once,
/// to nearest even; too large becomes infinity, in float8e4m3 the largest finite number. Min and
/// max take -0 to be below +0 and return NaN if any operand is NaN. Every NaN result is the
/// positive quiet NaN without payload. So results are the same bits on every instruction set (in
/// the default floating-point environment).
///
/// For kSum and kAvg, which are one kernel, `averaging` makes an average of the sum before it is
/// rounded (where all contributions are present); integers round towards zero. Other operators
/// ignore it.
using ReduceKernel = void (*)(std::span<const void* const> sources, void* destination,
                              std::size_t count, Averaging averaging) noexcept;

/// Kernel that computes destination[i] = source[i]·*scalar, of one type and rounded as by a
/// ReduceKernel; may be in place. The scalar needs no alignment either.
using ScaleKernel = void (*)(const void* source, void* destination, std::size_t count,
                             const void* scalar) noexcept;

/// Instruction sets that kernels are compiled for. kScalar is the baseline of the build.
enum class Simd : std::uint8_t { kScalar, kAvx2, kAvx512, kNeon };
std::string_view name_of(Simd simd) noexcept;
/// Returns whether this build has kernels for `simd` and this processor can run them.
bool supported(Simd simd) noexcept;
/// Returns the best supported instruction set, or the one that WHORL_SIMD names if supported.
/// Returns the instruction set of the kernels in use, which the first call chooses.
Simd default_simd() noexcept;

/// Kernel that copies. Ranges do not overlap and need no alignment.
using CopyKernel = void (*)(void* destination, const void* source, std::size_t bytes) noexcept;
/// Returns a kernel whose stores bypass the caches, for destinations that this core does not read
/// soon, or that another core has in its cache. Other threads may see the stores later than
/// ordinary ones that follow, until nontemporal_fence(). On a processor without such stores the
/// kernel is memcpy().
CopyKernel nontemporal_copy(Simd simd) noexcept;
/// Returns a kernel that copies through registers, for sources in the cache of a core that will
/// write them again. The C library copies large blocks, on some processors those above 2 KiB, by
/// one instruction (rep movsb), after which writing the lines takes that core up to four times as
/// long (Zen 4).
CopyKernel vector_copy(Simd simd) noexcept;
/// Orders non-temporal stores before all stores that follow.
void nontemporal_fence() noexcept;

/// Returns the kernel of `simd`, or that of kScalar if `simd` is not supported. Null only where
/// combines() says that there is no such reduction.
ReduceKernel reduce_kernel(DataType type, ReduceOp op, Simd simd) noexcept;
ScaleKernel scale_kernel(DataType type, Simd simd) noexcept;

} // namespace whorl
