#pragma once

// Access of a thread to 16 bytes, also between addresses that differ modulo 16. As combine.h, one
// source text for the device and for the tests on the host.

#include <cstddef>
#include <cstdint>

#include "kernels/convert.h"

#if defined(__CUDACC__)
#define WHORL_UNROLL _Pragma("unroll")
#define WHORL_DO_NOT_UNROLL _Pragma("unroll 1")
#else
#define WHORL_UNROLL
#define WHORL_DO_NOT_UNROLL
#endif

namespace whorl::gpu {
namespace {

inline constexpr std::uint64_t kVectorBytes = 16;

/// Vector of 16 bytes, the widest access of a thread.
struct alignas(kVectorBytes) [[gnu::may_alias]] Vector {
  std::uint32_t words[4];
};

/// Place of a thread among those of a segment.
struct Lane {
  std::uint64_t index, count;
  /// Returns the place in reverse order: edges go to threads that have the fewest vectors.
  WHORL_HOST_DEVICE Lane reversed() const { return {count - 1 - index, count}; }
};

template <class T>
struct [[gnu::packed, gnu::may_alias]] Anywhere {
  T value;
};

/// Division of a range of elements: some elements, whole vectors, some elements.
struct Division {
  std::uint64_t head; ///< number of elements before the first vector
  std::uint64_t vectors;
  std::uint64_t edges; ///< number of elements before the first vector and after the last

  /// Divides at addresses that are divisible by 16.
  WHORL_HOST_DEVICE static Division aligned(const void* data, std::uint64_t count,
                                            std::uint64_t size) {
    const std::uint64_t head = before_aligned(data) / size;
    if (count < head) return {count, 0, count};
    const std::uint64_t vectors = (count - head) * size / kVectorBytes;
    return {head, vectors, count - vectors * (kVectorBytes / size)};
  }
  /// Divides for reads by Window: a vector has 16 bytes before it and after it.
  WHORL_HOST_DEVICE static Division windowed(const void* data, std::uint64_t count,
                                             std::uint64_t size) {
    const std::uint64_t head = before_aligned(data) + kVectorBytes;
    const std::uint64_t bytes = count * size;
    if (bytes < head + 2 * kVectorBytes) return {count, 0, count};
    const std::uint64_t vectors = (bytes - head) / kVectorBytes - 1;
    return {head / size, vectors, count - vectors * (kVectorBytes / size)};
  }
  /// Returns the number of the element of edge `i`.
  WHORL_HOST_DEVICE std::uint64_t element(std::uint64_t i, std::uint64_t size) const {
    return i < head ? i : i + vectors * (kVectorBytes / size);
  }

 private:
  WHORL_HOST_DEVICE static std::uint64_t before_aligned(const void* data) {
    return (kVectorBytes - reinterpret_cast<std::uintptr_t>(data) % kVectorBytes) % kVectorBytes;
  }
};

template <class T>
WHORL_HOST_DEVICE void store_in_parts(std::byte* to, const Vector& vector) {
  struct Parts {
    T part[kVectorBytes / sizeof(T)];
  };
  struct [[gnu::may_alias]] Part {
    T value;
  };
  const auto parts = __builtin_bit_cast(Parts, vector);
  WHORL_UNROLL
  for (std::uint64_t p = 0; p < kVectorBytes / sizeof(T); ++p) {
    reinterpret_cast<Part*>(to)[p].value = parts.part[p];
  }
}

/// Writes 16 bytes to an address that is divisible by kAlignment, in the widest parts that the
/// address allows.
template <std::size_t kAlignment>
WHORL_HOST_DEVICE void store_anywhere(std::byte* to, const Vector& vector) {
  const auto address = reinterpret_cast<std::uintptr_t>(to);
  if (address % 16 == 0) {
    *reinterpret_cast<Vector*>(to) = vector;
  } else if (kAlignment == 8 || address % 8 == 0) {
    store_in_parts<std::uint64_t>(to, vector);
  } else if (kAlignment == 4 || address % 4 == 0) {
    if constexpr (kAlignment <= 4) store_in_parts<std::uint32_t>(to, vector);
  } else if (kAlignment == 2 || address % 2 == 0) {
    if constexpr (kAlignment <= 2) store_in_parts<std::uint16_t>(to, vector);
  } else {
    if constexpr (kAlignment == 1) store_in_parts<std::uint8_t>(to, vector);
  }
}

/// Access to 16 bytes at addresses that are divisible by 16.
struct Direct {
  Vector vector;

  WHORL_HOST_DEVICE void load(const std::byte* from) {
    vector = *reinterpret_cast<const Vector*>(from);
  }
  WHORL_HOST_DEVICE Vector get(const std::byte*) const { return vector; }
  template <std::size_t kAlignment>
  WHORL_HOST_DEVICE static void store(std::byte* to, const Vector& vector) {
    *reinterpret_cast<Vector*>(to) = vector;
  }
};

/// Read of 16 bytes from any address, by the two vectors that they lie in: the other bytes of these
/// may be changed meanwhile. If the address is divisible by 16, one vector is read twice.
struct Window {
  Vector low, high;

  WHORL_HOST_DEVICE void load(const std::byte* from) {
    const std::uint32_t shift = misalignment(from);
    const std::byte* const begin = from - shift;
    low = *reinterpret_cast<const Vector*>(begin);
    high = *reinterpret_cast<const Vector*>(begin + (shift == 0 ? 0 : kVectorBytes));
  }
  /// Returns the 16 bytes; `from` as for load(). A separate step, so that many loads come before
  /// the first use.
  WHORL_HOST_DEVICE Vector get(const std::byte* from) const {
    const std::uint32_t shift = misalignment(from);
    std::uint32_t words[8];
    WHORL_UNROLL
    for (int w = 0; w < 4; ++w) {
      words[w] = low.words[w];
      words[w + 4] = high.words[w];
    }
    WHORL_UNROLL
    for (int w = 0; w < 6; ++w) words[w] = (shift & 8) != 0 ? words[w + 2] : words[w];
    WHORL_UNROLL
    for (int w = 0; w < 5; ++w) words[w] = (shift & 4) != 0 ? words[w + 1] : words[w];
    Vector result;
    WHORL_UNROLL
    for (int w = 0; w < 4; ++w) {
      const auto both = static_cast<std::uint64_t>(words[w + 1]) << 32 | words[w];
      result.words[w] = static_cast<std::uint32_t>(both >> (8 * (shift & 3)));
    }
    return result;
  }
  /// Writes 16 bytes; `to` is divisible by kAlignment.
  template <std::size_t kAlignment>
  WHORL_HOST_DEVICE static void store(std::byte* to, const Vector& vector) {
    store_anywhere<kAlignment>(to, vector);
  }

 private:
  WHORL_HOST_DEVICE static std::uint32_t misalignment(const std::byte* from) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(from) % kVectorBytes);
  }
};

} // namespace
} // namespace whorl::gpu
