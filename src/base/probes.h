// Probes for tracers of the system (perf, bpftrace, SystemTap, gdb): each is one no-op instruction,
// and a note in the library that says where it is and where its arguments are. Nothing without
// sys/sdt.h.
#pragma once

#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
/// Probe whorl:operation__begin: sequence number, Collective, bytes, other rank of a transfer or
/// −1.
#define WHORL_PROBE_OPERATION_BEGIN(sequence, collective, bytes, peer) \
  DTRACE_PROBE4(whorl, operation__begin, sequence, collective, bytes, peer)
/// Probe whorl:operation__end, with the first two arguments of its begin.
#define WHORL_PROBE_OPERATION_END(sequence, collective) \
  DTRACE_PROBE2(whorl, operation__end, sequence, collective)
#else
#define WHORL_PROBE_OPERATION_BEGIN(sequence, collective, bytes, peer) static_cast<void>(0)
#define WHORL_PROBE_OPERATION_END(sequence, collective) static_cast<void>(0)
#endif
