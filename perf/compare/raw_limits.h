#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

// What a machine can do by itself, whatever the library: measured by two threads or processes on
// the first two processors that this process may use.

namespace limits {

using Clock = std::chrono::steady_clock;

/// Name and value, in the order of the output.
using Figures = std::vector<std::pair<std::string, double>>;

/// Why nothing was measured: a full sentence.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline void pause_briefly() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

/// The processors this process may use.
std::vector<int> processors();

/// Binds the calling thread to one processor.
void pin(int cpu);

/// Memory and caches, with both cores at work. In 10⁹ bytes per second:
///   copy, copy_nt, reduce, reduce_nt: traffic of both cores together from and to memory (every
///   byte
///     read and every byte written counts), by ordinary and by non-temporal stores; reduce is
///     out1 = out2 = a + b
///   cross_read: bytes that one core reads from lines the other has just written, both ways at once
///   handover, handover_nt: through the slots of a ring, per direction, both ways at once
void measure_memory(Figures* out);

/// A TCP connection between two processes that never block. The first stays where it is and the
/// second too, unless network namespaces are named (two paths as in /run/netns, and the address of
/// the first one).
///   round_trip_us of 8 bytes; one_way and two_way (per direction) in 10⁹ bytes per second
void measure_tcp(const std::vector<std::string>& namespaces, Figures* out);

/// The same connection between the same two processes, which send and receive n bytes at the same
/// time as two ranks of an allreduce do, through buffers of n bytes each: the time in µs for sizes
/// from 8 bytes to 64 MiB.
///   exchange_8_us, exchange_1024_us, …
void measure_exchanges(const std::vector<std::string>& namespaces, Figures* out);

} // namespace limits
