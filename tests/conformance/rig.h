#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "base/comm_error.h"
#include "base/wait.h"
#include "tests/support/run_ranks.h"
#include "transports/transport.h"

namespace whorl::test {

/// Transport under test, and how its ranks run.
struct TransportKind {
  std::string name;
  Mode mode = Mode::kProcesses;
  bool one_process = false;   ///< true if the PeerInfos claim that all ranks are in one process
  bool heap_publish = false;  ///< true if a source from heap_alloc() is sent without a copy
  bool plain_publish = false; ///< true if any other source is sent without a copy
  bool frees_early = false;   ///< true if a source is free before the peer has released the message
  bool puts = false;          ///< true if a message is written to a buffer from heap_alloc()
  bool buffers = false;       ///< true if a slot is free before the peer has released it
  /// Prepares the process before the ranks run; an error says why the transport is not there.
  std::function<Status()> prepare = {};
  std::function<std::unique_ptr<Transport>()> make;

  friend void PrintTo(const TransportKind& kind, std::ostream* out) { *out << kind.name; }
};

/// Test with a transport as its parameter; skipped, with the reason, where the transport is not
/// there.
class TransportTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    if (!GetParam().prepare) return;
    const Status status = GetParam().prepare();
    if (!status.ok()) GTEST_SKIP() << status.message();
  }
};

/// Returns the transports of this build, as listed in transport_kinds.cc.
const std::vector<TransportKind>& transport_kinds();
/// Returns further ones, for the full suite: combinations of transports that each are tested
/// anyway.
const std::vector<TransportKind>& more_transport_kinds();
/// Returns the name of a test's parameter.
inline std::string name_of_kind(const ::testing::TestParamInfo<TransportKind>& info) {
  return info.param.name;
}

struct RigOptions {
  int channels = 2;
  int slots = 4;
  std::size_t slot_bytes = 4096;
  std::uint64_t timeout_ns = 20'000'000'000; ///< timeout of connect() and of the waits below
  std::uint32_t spins = 50;
  std::uint64_t yield_ns = 200'000;
  bool shares_devices = false; ///< whether the PeerInfos claim that ranks have device memory
};

/// Transport of one rank, connected to all other ranks of the run.
class Rig {
 public:
  Rig(RankContext& context, const TransportKind& kind, std::uint64_t job,
      const RigOptions& options = {});
  /// Connects to the other ranks. The constructor has called listen() and exchanged the PeerInfos.
  Status connect();

  Endpoint& to(int peer, int channel = 0) { return *transport_->endpoint(peer, channel); }
  Transport& transport() { return *transport_; }
  CommError& comm_error() { return comm_error_; }
  const Membership& membership() const { return membership_; }
  /// Destroys the transport, as the destruction of a communicator does.
  void destroy() { transport_.reset(); }

  /// Waits with this rank's transport, which moves bytes of all endpoints meanwhile.
  WaitResult wait(const std::function<bool()>& done, std::uint64_t timeout_ns = 0);
  /// Sends a copy of `bytes`. Returns false if the wait failed, see comm_error().
  bool send(int peer, std::span<const std::byte> bytes, const Fingerprint& fingerprint,
            int channel = 0);
  /// Returns the next message, which stays until release(); empty if the wait failed.
  Message receive(int peer, int channel = 0);
  /// Waits until all sent messages will arrive without this rank.
  bool flush();

 private:
  RigOptions options_;
  CommError comm_error_;
  Membership membership_;
  std::unique_ptr<Transport> transport_; // declared after the membership, which must outlive it
};

/// Returns a number that no other run of this test program uses.
std::uint64_t fresh_job();
/// Returns `size` bytes that depend on `seed`.
std::vector<std::byte> pattern(std::size_t size, std::uint64_t seed);
/// Returns whether the message holds pattern(bytes, seed).
bool matches(const Message& message, std::size_t bytes, std::uint64_t seed);

} // namespace whorl::test
