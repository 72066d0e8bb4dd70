#pragma once

// The elements of a vector as values, and back: by the formats of the host's kernels.

#include <cstdint>

#include "gpu/vectors.h"
#include "kernels/formats.h"

namespace whorl::gpu {
namespace {

/// A format's own conversions, one element after the other.
template <class Format>
struct OneByOne {
  using Storage = typename Format::Storage;
  using Value = typename Format::Value;
  static constexpr int kPerVector = kVectorBytes / sizeof(Storage);
  struct alignas(kVectorBytes) Elements {
    Storage values[kPerVector];
  };

  WHORL_HOST_DEVICE static void unpack(const Vector& vector, Value (&values)[kPerVector]) {
    const auto elements = __builtin_bit_cast(Elements, vector);
    WHORL_UNROLL
    for (int e = 0; e < kPerVector; ++e) values[e] = Format::load(elements.values[e]);
  }
  WHORL_HOST_DEVICE static Vector pack(const Value (&values)[kPerVector]) {
    Elements elements;
    WHORL_UNROLL
    for (int e = 0; e < kPerVector; ++e) elements.values[e] = Format::store(values[e]);
    return __builtin_bit_cast(Vector, elements);
  }
};

template <class Format>
struct Conversions : OneByOne<Format> {};

} // namespace
} // namespace whorl::gpu
