#pragma once

// The body of the kernels: one source text for the device and for the tests on the host, which run
// its threads one after the other.
//
//   all sources ──load──▶ Value, combined in registers ──round──▶ all destinations
//
// Each input is read once and each output written once, whatever the number of ranks. The loads of
// up to kFan sources and kUnroll vectors are issued before the first is used: 128 bytes a thread,
// so that 512 threads of each multiprocessor cover the latency of the device's memory.

#include <cstddef>
#include <cstdint>

#include "gpu/work.h"
#include "kernels/formats.h"

#if defined(__CUDACC__)
#define WHORL_UNROLL _Pragma("unroll")
#define WHORL_DO_NOT_UNROLL _Pragma("unroll 1")
#else
#define WHORL_UNROLL
#define WHORL_DO_NOT_UNROLL
#endif

namespace whorl::gpu {
namespace {

using kernels::Plain;

inline constexpr std::uint64_t kVectorBytes = 16;

/// 16 bytes, the widest access of a thread.
struct alignas(kVectorBytes) Vector {
  std::uint32_t words[4];
};

/// Whether a launch is to do nothing. The word may change at any time.
WHORL_HOST_DEVICE bool is_cancelled(const Work& work) {
  return work.cancelled != nullptr &&
         *static_cast<const volatile std::uint32_t*>(work.cancelled) != 0;
}

/// A thread's place among those of a segment.
struct Lane {
  std::uint64_t index, count;
};

template <class T>
struct [[gnu::packed, gnu::may_alias]] Anywhere {
  T value;
};

/// The sources and destinations of a segment of a launch.
class SegmentOperands {
 public:
  WHORL_HOST_DEVICE SegmentOperands(const Work& work, const Segment& segment)
      : work_(work), segment_(segment) {}
  WHORL_HOST_DEVICE int sources() const { return segment_.sources; }
  WHORL_HOST_DEVICE int destinations() const { return segment_.destinations; }
  WHORL_HOST_DEVICE const std::byte* source(int k) const {
    return work_.sources[segment_.first_source + k] + segment_.source_offset;
  }
  WHORL_HOST_DEVICE std::byte* destination(int k) const {
    return work_.destinations[segment_.first_destination + k] + segment_.destination_offset;
  }
  WHORL_HOST_DEVICE std::uint64_t count() const { return work_.count; }
  WHORL_HOST_DEVICE std::int32_t divisor() const { return work_.divisor; }
  WHORL_HOST_DEVICE Segment::Access access() const { return segment_.access; }

 private:
  const Work& work_;
  const Segment& segment_;
};

/// Combines `count()` elements of all sources into all destinations; Operands is SegmentOperands or
/// has the same functions. kFew: for one or two sources.
template <class FormatType, class Op, bool kMayDivide, bool kFew, class Operands = SegmentOperands>
class Combine {
 public:
  using Format = FormatType;
  using Storage = typename Format::Storage;
  using Value = typename Format::Value;

  WHORL_HOST_DEVICE explicit Combine(const Operands& operands) : operands_(operands) {}

  WHORL_HOST_DEVICE void run(Lane lane) const {
    switch (operands_.access()) {
      case Segment::Access::kVector:
        return run_vectors(lane);
      case Segment::Access::kElement:
        return run_elements<Storage>(0, operands_.count(), lane);
      case Segment::Access::kByte:
        return run_elements<Anywhere<Storage>>(0, operands_.count(), lane);
    }
  }

 private:
  static constexpr int kFan = kFew ? 2 : 8; ///< sources that are loaded together
  static constexpr int kUnroll = kFew ? 4 : 1;
  static constexpr std::uint64_t kPerVector = kVectorBytes / sizeof(Storage);
  struct alignas(kVectorBytes) Elements {
    Storage values[kPerVector];
  };

  WHORL_HOST_DEVICE Storage finish(Value value) const {
    if constexpr (kMayDivide) {
      if (operands_.divisor() > 1) value = Format::divide(value, operands_.divisor());
    }
    return Format::store(value);
  }

  /// The elements before the first whole vector, the vectors, the elements after the last.
  WHORL_HOST_DEVICE void run_vectors(Lane lane) const {
    const std::uint64_t count = operands_.count();
    const auto address = reinterpret_cast<std::uintptr_t>(operands_.source(0));
    std::uint64_t head = (kVectorBytes - address % kVectorBytes) % kVectorBytes / sizeof(Storage);
    if (head > count) head = count;
    const std::uint64_t vectors = (count - head) / kPerVector;
    for (std::uint64_t first = lane.index; first < vectors; first += lane.count * kUnroll) {
      combine_vectors(head * sizeof(Storage), first, vectors, lane.count);
    }
    run_elements<Storage>(0, head, lane);
    run_elements<Storage>(head + vectors * kPerVector, count, lane);
  }

  /// Vectors `first`, `first + step`, … of each source, kUnroll of them or as many as there are.
  WHORL_HOST_DEVICE void combine_vectors(std::uint64_t begin, std::uint64_t first,
                                         std::uint64_t vectors, std::uint64_t step) const {
    Vector loaded[kUnroll][kFan];
    WHORL_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const std::uint64_t vector = first + static_cast<std::uint64_t>(u) * step;
      if (vector < vectors) load(loaded[u], 0, begin + vector * kVectorBytes);
    }
    WHORL_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const std::uint64_t vector = first + static_cast<std::uint64_t>(u) * step;
      if (vector < vectors) combine_vector(loaded[u], begin + vector * kVectorBytes);
    }
  }

  /// `loaded` are the first sources.
  WHORL_HOST_DEVICE void combine_vector(Vector (&loaded)[kFan], std::uint64_t offset) const {
    Value values[kPerVector];
    const auto first = __builtin_bit_cast(Elements, loaded[0]);
    WHORL_UNROLL
    for (std::uint64_t e = 0; e < kPerVector; ++e) values[e] = Format::load(first.values[e]);
    add(values, loaded, 1, operands_.sources());
    if constexpr (!kFew) {
      for (int done = kFan; done < operands_.sources(); done += kFan) {
        load(loaded, done, offset);
        add(values, loaded, 0, operands_.sources() - done);
      }
    }
    Elements result;
    WHORL_UNROLL
    for (std::uint64_t e = 0; e < kPerVector; ++e) result.values[e] = finish(values[e]);
    const auto bits = __builtin_bit_cast(Vector, result);
    WHORL_DO_NOT_UNROLL
    for (int k = 0; k < operands_.destinations(); ++k) {
      *reinterpret_cast<Vector*>(operands_.destination(k) + offset) = bits;
    }
  }

  WHORL_HOST_DEVICE void load(Vector (&loaded)[kFan], int from, std::uint64_t offset) const {
    WHORL_UNROLL
    for (int k = 0; k < kFan; ++k) {
      if (from + k >= operands_.sources()) break;
      loaded[k] = *reinterpret_cast<const Vector*>(operands_.source(from + k) + offset);
    }
  }

  /// Combines loaded[from … to − 1], as far as there are so many, with `values`.
  WHORL_HOST_DEVICE static void add(Value (&values)[kPerVector], const Vector (&loaded)[kFan],
                                    int from, int to) {
    WHORL_UNROLL
    for (int k = 0; k < kFan; ++k) {
      if (k < from) continue;
      if (k >= to) break;
      const auto other = __builtin_bit_cast(Elements, loaded[k]);
      WHORL_UNROLL
      for (std::uint64_t e = 0; e < kPerVector; ++e) {
        values[e] = Op::apply(values[e], Format::load(other.values[e]));
      }
    }
  }

  WHORL_HOST_DEVICE static Storage get(Storage value) { return value; }
  WHORL_HOST_DEVICE static Storage get(Anywhere<Storage> element) { return element.value; }
  WHORL_HOST_DEVICE static void put(Storage& to, Storage value) { to = value; }
  WHORL_HOST_DEVICE static void put(Anywhere<Storage>& to, Storage value) { to.value = value; }

  template <class Element>
  WHORL_HOST_DEVICE void run_elements(std::uint64_t begin, std::uint64_t end, Lane lane) const {
    WHORL_DO_NOT_UNROLL
    for (std::uint64_t i = begin + lane.index; i < end; i += lane.count) {
      const auto element = [&](int k) {
        return Format::load(get(reinterpret_cast<const Element*>(operands_.source(k))[i]));
      };
      Value value = element(0);
      WHORL_DO_NOT_UNROLL
      for (int k = 1; k < operands_.sources(); ++k) value = Op::apply(value, element(k));
      const Storage result = finish(value);
      WHORL_DO_NOT_UNROLL
      for (int k = 0; k < operands_.destinations(); ++k) {
        put(reinterpret_cast<Element*>(operands_.destination(k))[i], result);
      }
    }
  }

  const Operands& operands_;
};

} // namespace
} // namespace whorl::gpu
