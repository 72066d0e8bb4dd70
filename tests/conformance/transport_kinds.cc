#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "tests/conformance/minimal_transport.h"
#include "tests/conformance/rig.h"
#include "transports/faulty/transport.h"
#include "transports/inproc/transport.h"
#include "transports/shm/transport.h"
#include "transports/tcp/transport.h"
#include "transports/ucx/make.h"
#include "transports/verbs/verbs.h"
#ifdef WHORL_HAVE_VERBS
#include "tests/support/fake_verbs/fabric.h"
#include "transports/verbs/transport.h"
#endif

namespace whorl::test {
namespace {

/// Returns UCX over its transports `tls`, as its variable UCX_TLS has them.
TransportKind ucx_over(const char* tls, Mode mode) {
  return {.name = std::string("ucx_") + tls + (mode == Mode::kThreads ? "_threads" : ""),
          .mode = mode,
          .heap_publish = true,
          .plain_publish = true,
          .buffers = true,
          .prepare =
              [tls] {
                setenv("UCX_TLS", tls, 1);
                return check_ucx();
              },
          .make = [] { return *make_ucx_transport(); }};
}

TransportKind verbs(const char* name, Mode mode, std::unique_ptr<Transport> (*make)()) {
  return {.name = name, .mode = mode, .heap_publish = true, .frees_early = true, .make = make};
}

/// Makes a transport whose ranks are spread over the devices of this host.
std::unique_ptr<Transport> make_verbs() {
  static std::atomic<std::uint32_t> made{static_cast<std::uint32_t>(::getpid())};
  return make_verbs_transport({.number = made.fetch_add(1), .nearest = {}});
}

#ifdef WHORL_HAVE_VERBS
/// Makes a transport over devices in memory, which only threads can share.
std::unique_ptr<Transport> make_fake_verbs() {
  static auto& fabric = *new FakeFabric(
      {{.name = "fake0", .gids = {make_gid(0, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.1")}},
       {.name = "fake1", .gids = {make_gid(0, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.2")}}});
  static auto& host = *new VerbsHost(fabric.api());
  static std::atomic<std::uint32_t> made{0};
  return std::make_unique<VerbsTransport>(VerbsPlace{.number = made.fetch_add(1), .nearest = {}},
                                          &host);
}
#endif

/// Returns a transport whose messages arrive late, those of some connections later than others.
TransportKind faulty(TransportKind below) {
  below.name = "faulty_" + below.name;
  below.make = [make = below.make]() -> std::unique_ptr<Transport> {
    return std::make_unique<FaultyTransport>(
        make(), *FaultySettings::parse("seed=7,delay=0.2:500us,reorder=200us"));
  };
  return below;
}

/// Returns TCP, whose bytes are encrypted if `encrypts`.
TransportKind tcp(Mode mode, bool encrypts = false) {
  return {.name = std::string(encrypts ? "tcp_encrypted" : "tcp") +
                  (mode == Mode::kThreads ? "_threads" : ""),
          .mode = mode,
          .heap_publish = true,
          .plain_publish = true,
          .buffers = true,
          .make = [encrypts] { return std::make_unique<TcpTransport>(encrypts); }};
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
      tcp(Mode::kProcesses),
      tcp(Mode::kThreads),
#ifdef WHORL_HAVE_VERBS
      verbs("verbs_in_memory", Mode::kThreads, make_fake_verbs),
#endif
      ucx_over("tcp", Mode::kProcesses),
      ucx_over("tcp", Mode::kThreads),
      ucx_over("posix", Mode::kProcesses),
  };
}

TransportKind kind_named(std::string_view name) {
  const auto all = everywhere();
  return *std::find_if(all.begin(), all.end(),
                       [&](const TransportKind& kind) { return kind.name == name; });
}

} // namespace

const std::vector<TransportKind>& transport_kinds() {
  static const auto* const kinds = [] {
    auto* const all = new std::vector<TransportKind>(everywhere());
    all->push_back(faulty(kind_named("inproc")));
    // There are devices only for tests of RDMA (tests/rdma/suite.sh, which leaves out UCX for its
    // time).
    if (std::getenv("TEST_RDMA_DEVICES") == nullptr) return all;
    all->push_back(verbs("verbs", Mode::kProcesses, make_verbs));
    all->push_back(verbs("verbs_threads", Mode::kThreads, make_verbs));
    all->push_back(ucx_over("rc_v", Mode::kProcesses));
    all->push_back(ucx_over("rc_v", Mode::kThreads));
    return all;
  }();
  return *kinds;
}

const std::vector<TransportKind>& more_transport_kinds() {
  static const auto* const kinds =
      new std::vector{faulty(kind_named("shm")), faulty(kind_named("tcp")),
                      tcp(Mode::kProcesses, true), tcp(Mode::kThreads, true)};
  return *kinds;
}

} // namespace whorl::test
