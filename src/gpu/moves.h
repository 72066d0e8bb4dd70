#pragma once

// Ways in which the kernels of the interpreter move and combine elements.

#include "gpu/direct.h"
#include "gpu/pieces.h"

namespace whorl::gpu {
namespace {

template <std::size_t kBytes>
struct BitsOf;
template <>
struct BitsOf<1> {
  using Type = std::uint8_t;
};
template <>
struct BitsOf<2> {
  using Type = std::uint16_t;
};
template <>
struct BitsOf<4> {
  using Type = std::uint32_t;
};
template <>
struct BitsOf<8> {
  using Type = std::uint64_t;
};

/// Way in which the elements of an operation are moved. In programs that combine nothing, elements
/// are bytes.
struct Copies {
  WHORL_HOST_DEVICE static std::uint64_t element() { return 1; }
  WHORL_HOST_DEVICE static void combine(const BlockMemory&, Lane) {}
  WHORL_HOST_DEVICE static void copy(const BlockMemory& memory, Lane threads) {
    copy_piece<std::uint8_t>(memory, threads);
  }
  /// Moves a unit of the only sender of a direct exchange.
  template <class Exchange>
  WHORL_HOST_DEVICE static bool combine_units(const Exchange& exchange, std::uint64_t unit) {
    std::uint64_t data = 0;
    const bool good = exchange.receive(0, unit, data);
    if (good) exchange.store(unit, data);
    return good;
  }
};
template <class Reduction>
struct Reductions {
  using Storage = typename Reduction::Format::Storage;
  WHORL_HOST_DEVICE static std::uint64_t element() { return sizeof(Storage); }
  WHORL_HOST_DEVICE static void combine(const BlockMemory& memory, Lane threads) {
    combine_piece<Reduction>(memory, threads);
  }
  WHORL_HOST_DEVICE static void copy(const BlockMemory& memory, Lane threads) {
    copy_piece<typename BitsOf<sizeof(Storage)>::Type>(memory, threads);
  }
  template <class Exchange>
  WHORL_HOST_DEVICE static bool combine_units(const Exchange& exchange, std::uint64_t unit) {
    return gpu::combine_units<Reduction>(exchange, unit);
  }
};

} // namespace
} // namespace whorl::gpu
