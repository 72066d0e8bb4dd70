#pragma once

#include <sched.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

// Limits of a machine, whatever the library: measured by two threads or processes on the first two
// processors that this process may use.

namespace limits {

using Clock = std::chrono::steady_clock;

/// Names and values, in the order of the output.
using Figures = std::vector<std::pair<std::string, double>>;

/// Error that prevents a measurement; its message is a full sentence.
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

/// Returns the processors that this process may use.
std::vector<int> processors();

/// Binds the calling thread to one processor.
void pin(int cpu);

/// Measures memory and caches, with both cores at work. In 10⁹ bytes per second:
///   copy, copy_nt, reduce, reduce_nt: traffic of both cores together from and to memory (bytes
///     read and bytes written), by ordinary and by non-temporal stores; reduce is out1 = out2 = a +
///     b
///   cross_read: bytes that one core reads from lines the other has just written, both ways at once
///   handover, handover_nt: bytes through the slots of a ring, per direction, both ways at once
void measure_memory(Figures* out);

/// Measures a TCP connection between two processes that never block. Both use this process's
/// network unless namespaces are named (two paths as in /run/netns, and the address of the first).
///   round_trip_us of 8 bytes; one_way and two_way (per direction) in 10⁹ bytes per second
void measure_tcp(const std::vector<std::string>& namespaces, Figures* out);

/// Measures the connection of measure_tcp() while both processes send and receive n bytes at the
/// same time, as two ranks of an allreduce do, through buffers of n bytes each: the time in µs for
/// sizes from 8 bytes to 64 MiB.
///   exchange_8_us, exchange_1024_us, …
void measure_exchanges(const std::vector<std::string>& namespaces, Figures* out);

} // namespace limits
