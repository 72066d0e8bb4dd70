#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/comm_error.h"
#include "base/status.h"
#include "base/system.h"
#include "net/address.h"
#include "net/handshake.h"
#include "net/listener.h"

namespace whorl {

/// A connection that this rank makes.
struct MeshTarget {
  int rank = 0;
  SocketRole role = SocketRole::kData;
  std::uint32_t channel = 0;
  std::vector<SocketAddress> addresses; ///< best first
};

/// A connection that a peer makes to this rank.
struct MeshExpected {
  int rank = 0;
  SocketRole role = SocketRole::kData;
  std::uint32_t channel = 0;
};

/// Connections that connect_mesh() makes, and how. Pointers are borrowed for the call.
struct MeshPlan {
  int rank = 0;
  const Identity* identity = nullptr;
  std::vector<MeshTarget> targets;
  std::vector<MeshExpected> expected;
  std::uint64_t deadline_ns = 0;         ///< end of the wait, on sys().now_ns()'s clock
  std::string congestion;                ///< TCP congestion control of targets; empty: the system's
  const CommError* comm_error = nullptr; ///< error that ends the wait once it is set; may be null
  /// Asked now and then while this rank waits: an error ends the wait. May be empty. With it a rank
  /// that only waits for others to connect does so for half a second longer than the deadline: they
  /// know better why they could not, and may tell.
  std::function<Status()> check;
  /// True if targets have unix addresses at which only processes of this process's user may listen.
  bool same_user = false;
  bool encrypts = false; ///< whether the connections are encrypted; both sides must agree
  /// Error text for a target of which every address refuses connections after 0.1 s: set where all
  /// targets listened before this rank could know of them. Empty: the peer may not have started, so
  /// refused connections are tried again until the deadline.
  std::string gone;
  std::function<std::string(int rank)> describe; ///< names a rank in errors; may be empty

  /// Names a rank, with or without the function.
  std::string name_of(int other) const;
};

/// An authenticated, nonblocking connection.
struct MeshLink {
  int rank = 0;
  SocketRole role = SocketRole::kData;
  std::uint32_t channel = 0;
  StreamSocket socket;
  std::string via; ///< address that was connected to; empty for an accepted connection
};

/// Makes all connections of a plan at the same time and returns them: first the targets, in their
/// order, then the expected ones, in theirs. `listeners` are nonblocking listening sockets, none if
/// nothing is expected; they stay open.
///
/// A target's addresses are tried in order, each a little after the one before, without waiting for
/// the earlier one to fail; the first on which the peer proves its identity wins. A refused
/// connection is tried again until the deadline: the peer may not listen yet. Strangers on the
/// listeners cost a bounded number of sockets, each for a bounded time, and disturb nobody
/// (Acceptor).
///
/// This is the set-up counterpart of wait_until(): one poll() over all sockets, which ends at the
/// deadline or when the error is set. The error of a failure names every missing rank and, for each
/// address that was tried, the result. Then `made`, if given, receives the connections that exist,
/// so that the caller can send these peers the reason.
Result<std::vector<MeshLink>> connect_mesh(std::span<const Fd> listeners, const MeshPlan& plan,
                                           std::vector<MeshLink>* made = nullptr);

} // namespace whorl
