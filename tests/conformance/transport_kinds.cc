#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "tests/conformance/minimal_transport.h"
#include "tests/conformance/rig.h"
#include "transports/inproc/transport.h"
#include "transports/shm/transport.h"
#include "transports/tcp/transport.h"
#include "transports/verbs/verbs.h"

namespace whorl::testing {

namespace {

/// Makes a transport whose ranks are spread over the devices of this host.
std::unique_ptr<Transport> make_verbs() {
  static std::atomic<std::uint32_t> made{static_cast<std::uint32_t>(::getpid())};
  return make_verbs_transport({.number = made.fetch_add(1), .nearest = nullptr});
}

/// Returns the transports that every host has.
std::vector<TransportKind> everywhere() {
  return {
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
}

} // namespace

const std::vector<TransportKind>& transport_kinds() {
  static const auto* const kinds = [] {
    auto* const all = new std::vector<TransportKind>(everywhere());
    // Where a test of RDMA runs (tests/rdma/suite.sh), there are devices.
    if (std::getenv("WHORL_TEST_RDMA") == nullptr) return all;
    all->push_back({.name = "verbs", .mode = Mode::kProcesses, .make = make_verbs});
    all->push_back({.name = "verbs_threads", .mode = Mode::kThreads, .make = make_verbs});
    return all;
  }();
  return *kinds;
}

} // namespace whorl::testing
