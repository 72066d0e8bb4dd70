#pragma once

// Body of the kernels: one source text for the device and for the tests on the host, which run
// its threads one after the other.
//
//   all sources ──load──▶ Value, combined in registers ──round──▶ all destinations
//
// Each input is read once and each output written once, whatever the number of ranks. The loads of
// some sources and vectors are issued before the first is used: 64 to 128 bytes a thread, so that
// the threads of a multiprocessor cover the latency of the device's memory. The registers of loads
// that may be left out are set to zero first: otherwise each keeps its value, so it would be
// occupied in all of the kernel, and those of all its loops are too many.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gpu/conversions.h"
#include "gpu/vectors.h"
#include "gpu/work.h"
#include "kernels/formats.h"

namespace whorl::gpu {
namespace {

using kernels::Plain;

/// Sources and destinations of a segment of a launch.
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
  WHORL_HOST_DEVICE std::uint64_t count() const { return segment_.count; }
  WHORL_HOST_DEVICE std::int32_t divisor() const { return work_.divisor; }
  WHORL_HOST_DEVICE Segment::Access access() const { return segment_.access; }

 private:
  const Work& work_;
  const Segment& segment_;
};

/// Combiner of `count()` elements of all sources into all destinations; Operands is SegmentOperands
/// or has the same functions. kFew: for one or two sources.
template <class FormatType, class Op, bool kMayDivide, bool kFew, class Operands = SegmentOperands>
class Combine {
 public:
  using Format = FormatType;
  using Storage = typename Format::Storage;
  using Value = typename Format::Value;

  WHORL_HOST_DEVICE explicit Combine(const Operands& operands)
      : operands_(operands), scaled_(scale_of(operands)) {}

  WHORL_HOST_DEVICE void run(Lane lane) const {
    const Segment::Access access = operands_.access();
    if (access == Segment::Access::kByte) {
      return run_elements<Anywhere<Storage>>({operands_.count(), 0, operands_.count()}, lane);
    }
    const bool alike = access == Segment::Access::kVector;
    if (kCopies && !alike && operands_.sources() == 1) return copy_windows(lane);
    const std::byte* const begin = alike ? operands_.source(0) : operands_.destination(0);
    const auto all = alike ? Division::aligned(begin, operands_.count(), sizeof(Storage))
                           : Division::windowed(begin, operands_.count(), sizeof(Storage));
    run_elements<Storage>(all, lane.reversed());
    if (kCopies && operands_.sources() == 1) {
      copy_vectors(all, lane);
    } else if (alike) {
      for_vectors<Direct, kUnroll, kFan>(all, lane);
    } else {
      for_vectors<Window, kWindowUnroll, kWindowFan>(all, lane);
    }
  }

  /// Combines some elements of all sources, of which `load(k, elements)` returns those of source k.
  /// Returns false if `load` does so.
  template <class Elements, class Load>
  WHORL_HOST_DEVICE bool combine_elements(Elements& result, Load&& load) const {
    constexpr int kCount = sizeof result.values / sizeof(Storage);
    Value values[kCount]{};
    WHORL_DO_NOT_UNROLL
    for (int k = 0; k < operands_.sources(); ++k) {
      Elements loaded;
      if (!load(k, loaded)) return false;
      Value others[kCount];
      WHORL_UNROLL
      for (int e = 0; e < kCount; ++e) others[e] = Format::load(loaded.values[e]);
      scale(others);
      WHORL_UNROLL
      for (int e = 0; e < kCount; ++e) {
        values[e] = k == 0 ? others[e] : Op::apply(values[e], others[e]);
      }
    }
    divide(values);
    WHORL_UNROLL
    for (int e = 0; e < kCount; ++e) result.values[e] = Format::store(values[e]);
    return true;
  }

 private:
  /// Whether the kernel also copies, see Kernels::copy(): one source is moved unchanged.
  static constexpr bool kCopies =
      kFew && std::is_same_v<Format, Plain<Storage>> && std::is_same_v<Op, kernels::Max>;
  static constexpr int kPerVector = kVectorBytes / sizeof(Storage);

  /// Numbers of vectors and sources that a thread loads before it uses the first: as many as leave
  /// room for two blocks on a multiprocessor. Small elements take more registers as values, and a
  /// Window is two vectors.
  static constexpr int kUnroll = !kFew ? 1 : sizeof(Storage) == 1 ? 2 : 4;
  static constexpr int kFan = kFew ? 2 : sizeof(Storage) <= 2 ? 4 : 8;
  static constexpr int kWindowUnroll = kFew ? kUnroll / 2 : 1;
  static constexpr int kWindowFan = 2;

  /// Returns the k of Averaging: each operand is multiplied by 2^-k. All sources are inputs: on
  /// devices, averages have no partial sums.
  WHORL_HOST_DEVICE static int scale_of([[maybe_unused]] const Operands& operands) {
    if constexpr (kMayDivide) {
      if constexpr (Format::kScalesOperands) return kernels::ceil_log2(operands.divisor());
    }
    return 0;
  }

  template <int kCount>
  WHORL_HOST_DEVICE void scale([[maybe_unused]] Value (&values)[kCount]) const {
    if constexpr (kMayDivide) {
      if constexpr (Format::kScalesOperands) {
        if (scaled_ == 0) return; // a sum
        const auto factor = kernels::inverse_power<Value>(scaled_);
        WHORL_UNROLL
        for (int e = 0; e < kCount; ++e) values[e] *= factor;
      }
    }
  }

  template <int kCount>
  WHORL_HOST_DEVICE void divide([[maybe_unused]] Value (&values)[kCount]) const {
    if constexpr (kMayDivide) {
      const int divisor = operands_.divisor();
      if (divisor <= 1) return;
      WHORL_UNROLL
      for (int e = 0; e < kCount; ++e) values[e] = Format::divide(values[e], divisor, scaled_);
    }
  }

  /// Combines whole vectors. Direct: all addresses are equal modulo 16. Window: vectors are aligned
  /// to the first destination.
  template <class Access, int kVectors, int kSources>
  WHORL_HOST_DEVICE void for_vectors(Division all, Lane lane) const {
    const std::uint64_t begin = all.head * sizeof(Storage);
    WHORL_DO_NOT_UNROLL
    for (std::uint64_t first = lane.index; first < all.vectors; first += lane.count * kVectors) {
      Access loaded[kVectors][kSources]{};
      WHORL_UNROLL
      for (int u = 0; u < kVectors; ++u) {
        const std::uint64_t vector = first + static_cast<std::uint64_t>(u) * lane.count;
        if (vector < all.vectors) load(loaded[u], 0, begin + vector * kVectorBytes);
      }
      WHORL_UNROLL
      for (int u = 0; u < kVectors; ++u) {
        const std::uint64_t vector = first + static_cast<std::uint64_t>(u) * lane.count;
        if (vector < all.vectors) combine_vector(loaded[u], begin + vector * kVectorBytes);
      }
    }
  }

  /// Combines one vector of all sources; `loaded` are the first sources.
  template <class Access, int kSources>
  WHORL_HOST_DEVICE void combine_vector(Access (&loaded)[kSources], std::uint64_t offset) const {
    const Vector first = loaded[0].get(operands_.source(0) + offset);
    Value values[kPerVector];
    Conversions<Format>::unpack(first, values);
    scale(values);
    add(values, loaded, 1, 0, offset);
    if constexpr (!kFew) {
      WHORL_DO_NOT_UNROLL
      for (int done = kSources; done < operands_.sources(); done += kSources) {
        load(loaded, done, offset);
        add(values, loaded, 0, done, offset);
      }
    }
    divide(values);
    store_all<Access>(offset, Conversions<Format>::pack(values));
  }

  template <class Access>
  WHORL_HOST_DEVICE void store_all(std::uint64_t offset, const Vector& vector) const {
    WHORL_DO_NOT_UNROLL
    for (int k = 0; k < operands_.destinations(); ++k) {
      Access::template store<sizeof(Storage)>(operands_.destination(k) + offset, vector);
    }
  }

  /// Loads sources `from`, from + 1, …, as far as they exist.
  template <class Access, int kSources>
  WHORL_HOST_DEVICE void load(Access (&loaded)[kSources], int from, std::uint64_t offset) const {
    WHORL_UNROLL
    for (int k = 0; k < kSources; ++k) {
      if (from + k < operands_.sources()) loaded[k].load(operands_.source(from + k) + offset);
    }
  }

  /// Combines loaded[begin …], which are sources from + begin, …, with `values`.
  template <class Access, int kSources>
  WHORL_HOST_DEVICE void add(Value (&values)[kPerVector], const Access (&loaded)[kSources],
                             int begin, int from, std::uint64_t offset) const {
    WHORL_UNROLL
    for (int k = 0; k < kSources; ++k) {
      if (k < begin || from + k >= operands_.sources()) continue;
      Value others[kPerVector];
      Conversions<Format>::unpack(loaded[k].get(operands_.source(from + k) + offset), others);
      scale(others);
      WHORL_UNROLL
      for (int e = 0; e < kPerVector; ++e) values[e] = Op::apply(values[e], others[e]);
    }
  }

  WHORL_HOST_DEVICE static Storage get(Storage value) { return value; }
  WHORL_HOST_DEVICE static Storage get(Anywhere<Storage> element) { return element.value; }
  WHORL_HOST_DEVICE static void put(Storage& to, Storage value) { to = value; }
  WHORL_HOST_DEVICE static void put(Anywhere<Storage>& to, Storage value) { to.value = value; }

  /// Combines the edges of `all`, one after the other; the loads of up to kFan sources come before
  /// the first use.
  template <class Element>
  WHORL_HOST_DEVICE void run_elements(Division all, Lane lane) const {
    WHORL_DO_NOT_UNROLL
    for (std::uint64_t edge = lane.index; edge < all.edges; edge += lane.count) {
      const std::uint64_t i = all.element(edge, sizeof(Storage));
      Value value[1]{};
      WHORL_DO_NOT_UNROLL
      for (int from = 0; from < operands_.sources(); from += kFan) {
        Storage loaded[kFan]{};
        WHORL_UNROLL
        for (int k = 0; k < kFan; ++k) {
          if (from + k >= operands_.sources()) break;
          loaded[k] = get(reinterpret_cast<const Element*>(operands_.source(from + k))[i]);
        }
        WHORL_UNROLL
        for (int k = 0; k < kFan; ++k) {
          if (from + k >= operands_.sources()) break;
          Value other[1]{Format::load(loaded[k])};
          scale(other);
          value[0] = from + k == 0 ? other[0] : Op::apply(value[0], other[0]);
        }
      }
      divide(value);
      const Storage result = Format::store(value[0]);
      WHORL_DO_NOT_UNROLL
      for (int k = 0; k < operands_.destinations(); ++k) {
        put(reinterpret_cast<Element*>(operands_.destination(k))[i], result);
      }
    }
  }

  /// Copies one source to all destinations, which have its alignment.
  WHORL_HOST_DEVICE void copy_vectors(Division all, Lane lane) const {
    constexpr int kVectors = 4;
    const std::byte* const from = operands_.source(0);
    const std::uint64_t begin = all.head * sizeof(Storage);
    WHORL_DO_NOT_UNROLL
    for (std::uint64_t first = lane.index; first < all.vectors; first += lane.count * kVectors) {
      Direct loaded[kVectors]{};
      WHORL_UNROLL
      for (int u = 0; u < kVectors; ++u) {
        const std::uint64_t vector = first + static_cast<std::uint64_t>(u) * lane.count;
        if (vector < all.vectors) loaded[u].load(from + begin + vector * kVectorBytes);
      }
      WHORL_UNROLL
      for (int u = 0; u < kVectors; ++u) {
        const std::uint64_t vector = first + static_cast<std::uint64_t>(u) * lane.count;
        if (vector < all.vectors)
          store_all<Direct>(begin + vector * kVectorBytes, loaded[u].vector);
      }
    }
    run_elements<Storage>(all, lane.reversed());
  }

  /// Copies one source to each destination by that one's alignment. The source is read anew for
  /// each, from the caches: destinations are the inner loop.
  WHORL_HOST_DEVICE void copy_windows(Lane lane) const {
    constexpr int kWindows = 2;
    constexpr std::uint64_t kMaxEdges = 4 * kVectorBytes / sizeof(Storage);
    const std::byte* const from = operands_.source(0);
    const auto division = [&](const std::byte* to) {
      return Division::windowed(to, operands_.count(), sizeof(Storage));
    };
    const std::uint64_t most = operands_.count() / std::uint64_t{kPerVector};
    WHORL_DO_NOT_UNROLL
    for (std::uint64_t first = lane.index; first < most; first += lane.count * kWindows) {
      WHORL_DO_NOT_UNROLL
      for (int k = 0; k < operands_.destinations(); ++k) {
        std::byte* const to = operands_.destination(k);
        const Division all = division(to);
        Window loaded[kWindows]{};
        const auto offset = [&](int u) {
          return all.head * sizeof(Storage) +
                 (first + static_cast<std::uint64_t>(u) * lane.count) * kVectorBytes;
        };
        const auto exists = [&](int u) {
          return first + static_cast<std::uint64_t>(u) * lane.count < all.vectors;
        };
        WHORL_UNROLL
        for (int u = 0; u < kWindows; ++u) {
          if (exists(u)) loaded[u].load(from + offset(u));
        }
        WHORL_UNROLL
        for (int u = 0; u < kWindows; ++u) {
          if (exists(u))
            *reinterpret_cast<Vector*>(to + offset(u)) = loaded[u].get(from + offset(u));
        }
      }
    }
    const std::uint64_t edges = kMaxEdges * static_cast<std::uint64_t>(operands_.destinations());
    const Lane others = lane.reversed();
    for (std::uint64_t i = others.index; i < edges; i += others.count) {
      std::byte* const to = operands_.destination(static_cast<int>(i / kMaxEdges));
      const Division all = division(to);
      if (i % kMaxEdges >= all.edges) continue;
      const std::uint64_t element = all.element(i % kMaxEdges, sizeof(Storage));
      reinterpret_cast<Storage*>(to)[element] = reinterpret_cast<const Storage*>(from)[element];
    }
  }

  const Operands& operands_;
  const int scaled_;
};

} // namespace
} // namespace whorl::gpu
