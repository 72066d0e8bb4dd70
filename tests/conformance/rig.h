#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "base/verdict.h"
#include "base/wait.h"
#include "tests/support/run_ranks.h"
#include "transports/transport.h"

namespace whorl::testing {

/// A transport as the conformance tests see it, and how its ranks live.
struct TransportKind {
  std::string name;
  Mode mode = Mode::kProcesses;
  bool one_process = false;   ///< whether the cards claim that all ranks are in one process
  bool heap_publish = false;  ///< whether a source from heap_alloc() goes without a copy
  bool plain_publish = false; ///< whether any other source does
  bool places = false;        ///< whether a message goes straight to a place from heap_alloc()
  bool buffers = false;       ///< whether a slot is free again before the peer has released it
  std::function<std::unique_ptr<Transport>()> make;

  friend void PrintTo(const TransportKind& kind, std::ostream* out) { *out << kind.name; }
};

/// All transports of this build; the list is in transport_kinds.cc.
const std::vector<TransportKind>& transport_kinds();

struct RigOptions {
  int channels = 2;
  int slots = 4;
  std::size_t slot_bytes = 4096;
  std::uint64_t timeout_ns = 20'000'000'000; ///< of connect() and of the waits below
  std::uint32_t spins = 50;
  std::uint64_t yield_ns = 200'000;
};

/// One rank's transport, connected to all other ranks of the run.
class Rig {
 public:
  Rig(RankContext& context, const TransportKind& kind, std::uint64_t job,
      const RigOptions& options = {});
  /// listen() and the exchange of cards were done by the constructor.
  Status connect();

  Endpoint& to(int peer, int channel = 0) { return *transport_->endpoint(peer, channel); }
  Transport& transport() { return *transport_; }
  Verdict& verdict() { return verdict_; }
  const Membership& membership() const { return membership_; }
  /// Ends the transport, as the destruction of a communicator does.
  void destroy() { transport_.reset(); }

  /// Waits with this rank's transport; moves bytes of all endpoints meanwhile.
  WaitResult wait(const std::function<bool()>& done, std::uint64_t timeout_ns = 0);
  /// Sends a copy of `bytes`. False: the wait failed, see verdict().
  bool send(int peer, std::span<const std::byte> bytes, const Fingerprint& fingerprint,
            int channel = 0);
  /// The next message, which stays until release(); none if the wait failed.
  Message receive(int peer, int channel = 0);
  /// Waits until everything sent will arrive without this rank.
  bool flush();

 private:
  RigOptions options_;
  Verdict verdict_;
  Membership membership_;
  std::unique_ptr<Transport> transport_; // after the membership, which outlives it
};

/// A number that no other run of this test program uses.
std::uint64_t fresh_job();
/// `size` bytes that depend on `seed`.
std::vector<std::byte> pattern(std::size_t size, std::uint64_t seed);
/// Whether the message holds pattern(bytes, seed).
bool matches(const Message& message, std::size_t bytes, std::uint64_t seed);

} // namespace whorl::testing
