#include "tests/conformance/minimal_transport.h"
#include "tests/conformance/rig.h"
#include "transports/inproc/transport.h"
#include "transports/shm/transport.h"
#include "transports/tcp/transport.h"

namespace whorl::testing {

const std::vector<TransportKind>& transport_kinds() {
  static const auto* const kinds = new std::vector<TransportKind>{
      {.name = "inproc",
       .mode = Mode::kThreads,
       .one_process = true,
       .heap_publish = true,
       .plain_publish = true,
       .puts = true,
       .make = [] { return std::make_unique<InprocTransport>(); }},
      {.name = "minimal",
       .mode = Mode::kThreads,
       .one_process = true,
       .make = [] { return std::make_unique<MinimalTransport>(); }},
      {.name = "shm",
       .mode = Mode::kProcesses,
       .heap_publish = true,
       .puts = true,
       .make = [] { return std::make_unique<ShmTransport>(); }},
      // Ranks as threads, for a thread sanitizer, in the code that processes run.
      {.name = "shm_threads",
       .mode = Mode::kThreads,
       .heap_publish = true,
       .puts = true,
       .make = [] { return std::make_unique<ShmTransport>(); }},
      {.name = "tcp",
       .mode = Mode::kProcesses,
       .heap_publish = true,
       .plain_publish = true,
       .buffers = true,
       .make = [] { return std::make_unique<TcpTransport>(); }},
      {.name = "tcp_threads",
       .mode = Mode::kThreads,
       .heap_publish = true,
       .plain_publish = true,
       .buffers = true,
       .make = [] { return std::make_unique<TcpTransport>(); }},
  };
  return *kinds;
}

} // namespace whorl::testing
