#pragma once

// Bodies of the baseline kernels: one text for the device and for the tests' pretended device,
// which runs their threads one after the other.

#include <cstdint>

#if defined(__CUDACC__)
#define PERF_BOTH __host__ __device__ __forceinline__
#define PERF_UNROLL _Pragma("unroll")
#else
#define PERF_BOTH inline
#define PERF_UNROLL
#endif

namespace perf::gpu {

inline constexpr int kThreads = 512;
inline constexpr int kMaxRanks = 16;

struct alignas(16) Floats {
  float v[4];
};

/// Index of a thread among all `count` threads that share the work.
struct Lane {
  std::uint64_t index, count;
};

struct Triad {
  Floats* a;
  const Floats* b;
  const Floats* c;
  std::uint64_t vectors;

  PERF_BOTH void run(Lane lane) const {
    constexpr int kUnroll = 4; // 128 bytes of loads in flight in each thread
    for (std::uint64_t first = lane.index; first < vectors; first += lane.count * kUnroll) {
      Floats x[kUnroll], y[kUnroll];
      PERF_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::uint64_t i = first + static_cast<std::uint64_t>(u) * lane.count;
        if (i < vectors) {
          x[u] = b[i];
          y[u] = c[i];
        }
      }
      PERF_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::uint64_t i = first + static_cast<std::uint64_t>(u) * lane.count;
        if (i >= vectors) continue;
        Floats sum;
        for (int e = 0; e < 4; ++e) sum.v[e] = x[u].v[e] + 3.0F * y[u].v[e];
        a[i] = sum;
      }
    }
  }
};

/// Returns the bits of word `index`: a mixing function of 32 bits.
PERF_BOTH std::uint32_t random_word(std::uint64_t index) {
  std::uint64_t x = index * 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ULL;
  return static_cast<std::uint32_t>(x >> 32);
}

struct Fill {
  std::uint32_t* words;
  std::uint64_t count;
  std::uint32_t mask[2], bits[2]; ///< bits of even and of odd words

  PERF_BOTH void run(Lane lane) const {
    for (std::uint64_t i = lane.index; i < count; i += lane.count) {
      words[i] = (random_word(i) & mask[i % 2]) | bits[i % 2];
    }
  }
};

/// Something that a block does to exchange messages, many times in one thread, or in all threads of
/// a block (kBarrier).
struct Costs {
  enum Act : int {
    kAcquire,       ///< load with acquire at the scope of the system
    kRelaxed,       ///< relaxed load at that scope
    kRelease,       ///< store with release at that scope
    kFence,         ///< relaxed store and a fence at that scope
    kFenceOfDevice, ///< the same at the scope of the device
    kTimer,         ///< read of the global timer
    kSleep,         ///< sleep of 20 ns at least
    kBarrier,       ///< barrier of the block
  };
  std::uint32_t* word; ///< word in device memory, or in host memory
  int blocks;          ///< number of blocks, of which the first is timed
  int stride;          ///< number of words from the word of a block to that of the next
  std::uint64_t* out;  ///< two words in device memory: cycles, and a sum
  int times;
  int act;
};

/// Arguments and steps of an allreduce over the ring of ranks: in step t < N − 1 a rank adds its
/// own input to a part read from the rank before, in later steps it copies a part. Ranks only read
/// each other's memory.
struct RingWork {
  const Floats* send[kMaxRanks];
  Floats* recv[kMaxRanks];
  std::uint32_t* flags; ///< [block]: number of steps done since the memory was zeroed
  std::uint64_t vectors;
  int ranks, channels; ///< the grid has ranks × channels blocks

  PERF_BOTH int steps() const { return 2 * (ranks - 1); }

  PERF_BOTH void step(int rank, int channel, int t, Lane lane) const {
    const int before = (rank + ranks - 1) % ranks;
    const bool adds = t < ranks - 1;
    const int part = adds ? (rank + ranks - 1 - t) % ranks : (rank + 2 * ranks - 1 - t) % ranks;
    const auto at = [&](std::uint64_t share) {
      return vectors * share /
             (static_cast<std::uint64_t>(ranks) * static_cast<unsigned>(channels));
    };
    const std::uint64_t share = static_cast<std::uint64_t>(part) * static_cast<unsigned>(channels) +
                                static_cast<unsigned>(channel);
    const std::uint64_t end = at(share + 1);
    const Floats* const theirs = t == 0 ? send[before] : recv[before];
    constexpr int kUnroll = 4;
    for (std::uint64_t first = at(share) + lane.index; first < end; first += lane.count * kUnroll) {
      Floats x[kUnroll], y[kUnroll];
      PERF_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::uint64_t i = first + static_cast<std::uint64_t>(u) * lane.count;
        if (i < end) {
          x[u] = theirs[i];
          if (adds) y[u] = send[rank][i];
        }
      }
      PERF_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::uint64_t i = first + static_cast<std::uint64_t>(u) * lane.count;
        if (i >= end) continue;
        if (adds) {
          for (int e = 0; e < 4; ++e) x[u].v[e] += y[u].v[e];
        }
        recv[rank][i] = x[u];
      }
    }
  }
};

} // namespace perf::gpu
