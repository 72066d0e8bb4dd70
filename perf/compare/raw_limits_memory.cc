#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "perf/compare/raw_limits.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace limits {
namespace {

constexpr std::size_t kArrayBytes = std::size_t{64} << 20; ///< larger than the caches
constexpr std::size_t kSharedBytes = 256 << 10; ///< size that fits into one core's caches
constexpr std::size_t kSlotBytes = 64 << 10;
constexpr std::size_t kSlots =
    16;                    ///< 1 MiB: lines have left the caches when they are written again
constexpr int kPasses = 3; ///< number of passes; the best one counts, since these are limits

struct Free {
  void operator()(std::byte* data) const { std::free(data); }
};
using Array = std::unique_ptr<std::byte, Free>;

Array make_array(std::size_t bytes) {
  Array array(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
  if (array == nullptr) throw Failure("not enough memory.");
  std::memset(array.get(), 0, bytes);
  return array;
}

struct alignas(128) Flag {
  std::atomic<std::uint64_t> value{0}; // release by its writer; acquire by the other thread
};

void wait_for(const Flag& flag, std::uint64_t value) {
  while (flag.value.load(std::memory_order_acquire) < value) pause_briefly();
}

/// Two threads, one on each processor, that run the same function at the same time.
class Pair {
 public:
  /// Runs `body(self)` on both threads and returns the seconds until both are done, the least of
  /// `passes`.
  template <class Body>
  double run(int passes, Body&& body) {
    double best = 1e9;
    Flag entered[2], left[2];
    const auto work = [&](int self) {
      pin(cpus_[static_cast<std::size_t>(self)]);
      for (int pass = 1; pass <= passes; ++pass) {
        meet(entered, self, static_cast<std::uint64_t>(pass));
        const auto start = Clock::now();
        body(self);
        meet(left, self, static_cast<std::uint64_t>(pass));
        if (self == 0) best = std::min(best, seconds_since(start));
      }
    };
    std::thread other(work, 1);
    work(0);
    other.join();
    return best;
  }

  static void meet(Flag* flags, int self, std::uint64_t value) {
    flags[self].value.store(value, std::memory_order_release);
    wait_for(flags[1 - self], value);
  }

 private:
  const std::vector<int> cpus_ = processors(); // read before pin() binds the calling thread
};

// --- kernels -------------------------------------------------------------------------------------

/// Copies in pieces for which the C library does not choose non-temporal stores.
void copy_ordinary(const std::byte* from, std::byte* to, std::size_t bytes) {
  constexpr std::size_t kPiece = 16 << 10;
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    std::memcpy(to + at, from + at, std::min(kPiece, bytes - at));
  }
}

void reduce(const float* a, const float* b, float* out1, float* out2, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out1[i] = out2[i] = a[i] + b[i];
}

#ifdef __SSE2__
constexpr bool kNonTemporal = true;

void copy_nt(const std::byte* from, std::byte* to, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 64) {
    for (std::size_t part = 0; part < 64; part += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at + part),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(from + at + part)));
    }
  }
  _mm_sfence();
}

void reduce_nt(const float* a, const float* b, float* out1, float* out2, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 16) {
    __m128 sum[4];
    for (std::size_t part = 0; part < 4; ++part) {
      sum[part] = _mm_add_ps(_mm_load_ps(a + i + 4 * part), _mm_load_ps(b + i + 4 * part));
    }
    for (std::size_t part = 0; part < 4; ++part) _mm_stream_ps(out1 + i + 4 * part, sum[part]);
    for (std::size_t part = 0; part < 4; ++part) _mm_stream_ps(out2 + i + 4 * part, sum[part]);
  }
  _mm_sfence();
}
#else
constexpr bool kNonTemporal = false;
void copy_nt(const std::byte*, std::byte*, std::size_t) {}
void reduce_nt(const float*, const float*, float*, float*, std::size_t) {}
#endif

// --- figures -------------------------------------------------------------------------------------

void measure_traffic(Pair& pair, Figures* out) {
  const Array a = make_array(kArrayBytes), b = make_array(kArrayBytes);
  const Array c = make_array(kArrayBytes), d = make_array(kArrayBytes);
  constexpr std::size_t kHalf = kArrayBytes / 2;
  const auto at = [](const Array& array, int self) {
    return array.get() + static_cast<std::size_t>(self) * kHalf;
  };
  const auto floats = [&](const Array& array, int self) {
    return reinterpret_cast<float*>(at(array, self));
  };
  const auto record = [&](const char* name, int arrays, auto&& body) {
    const double seconds = pair.run(kPasses, body);
    out->emplace_back(name, static_cast<double>(arrays) * kArrayBytes / seconds / 1e9);
  };
  record("copy", 2, [&](int self) { copy_ordinary(at(a, self), at(c, self), kHalf); });
  record("reduce", 4, [&](int self) {
    reduce(floats(a, self), floats(b, self), floats(c, self), floats(d, self), kHalf / 4);
  });
  if (!kNonTemporal) return;
  record("copy_nt", 2, [&](int self) { copy_nt(at(a, self), at(c, self), kHalf); });
  record("reduce_nt", 4, [&](int self) {
    reduce_nt(floats(a, self), floats(b, self), floats(c, self), floats(d, self), kHalf / 4);
  });
}

// Measures how fast each thread reads a buffer that the other thread has just written; only the
// reads are timed.
void measure_cross_read(Pair& pair, Figures* out) {
  constexpr int kTimes = 40;
  const Array shared[2] = {make_array(kSharedBytes), make_array(kSharedBytes)};
  const Array sink[2] = {make_array(4096), make_array(4096)};
  Flag written[2], read[2];
  double best[2] = {1e9, 1e9};
  pair.run(1, [&](int self) {
    const auto own = static_cast<std::size_t>(self);
    for (std::uint64_t i = 1; i <= kTimes; ++i) {
      std::memset(shared[own].get(), static_cast<int>(i), kSharedBytes);
      Pair::meet(written, self, i);
      const auto start = Clock::now();
      for (std::size_t at = 0; at < kSharedBytes; at += 4096) {
        std::memcpy(sink[own].get(), shared[1 - own].get() + at, 4096);
      }
      best[self] = std::min(best[self], seconds_since(start));
      Pair::meet(read, self, i);
    }
  });
  out->emplace_back("cross_read", kSharedBytes / std::max(best[0], best[1]) / 1e9);
}

// Measures both directions at once: each thread fills the slots of its own ring and empties those
// of the other's.
void measure_handover(Pair& pair, const char* name, bool non_temporal, Figures* out) {
  constexpr std::uint64_t kMessages = 512;
  const Array ring[2] = {make_array(kSlots * kSlotBytes), make_array(kSlots * kSlotBytes)};
  const Array local[2] = {make_array(2 * kSlotBytes), make_array(2 * kSlotBytes)};
  std::vector<Flag> filled(2), emptied(2); // index: number of the ring
  const double seconds = pair.run(kPasses, [&](int self) {
    const auto own = static_cast<std::size_t>(self), other = 1 - own;
    const std::uint64_t before = filled[own].value.load(std::memory_order_relaxed); // own counter
    for (std::uint64_t i = before + 1; i <= before + kMessages; ++i) {
      const std::size_t slot = i % kSlots * kSlotBytes;
      if (i > kSlots) wait_for(emptied[own], i - kSlots);
      (non_temporal ? copy_nt : copy_ordinary)(local[own].get(), ring[own].get() + slot,
                                               kSlotBytes);
      filled[own].value.store(i, std::memory_order_release);
      wait_for(filled[other], i);
      copy_ordinary(ring[other].get() + slot, local[own].get() + kSlotBytes, kSlotBytes);
      emptied[other].value.store(i, std::memory_order_release);
    }
  });
  out->emplace_back(name, kMessages * kSlotBytes / seconds / 1e9);
}

} // namespace

void measure_memory(Figures* out) {
  Pair pair;
  measure_traffic(pair, out);
  measure_cross_read(pair, out);
  measure_handover(pair, "handover", false, out);
  if (kNonTemporal) measure_handover(pair, "handover_nt", true, out);
}

} // namespace limits
