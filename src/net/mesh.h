#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/system.h"
#include "base/verdict.h"
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

/// What connect_mesh() shall do. Pointers are borrowed for the call.
struct MeshPlan {
  int rank = 0;
  const Identity* identity = nullptr;
  std::vector<MeshTarget> targets;
  std::vector<MeshExpected> expected;
  std::uint64_t deadline_ns = 0;    ///< on sys().now_ns()'s clock
  std::string congestion;           ///< TCP's, of targets; empty: the system's
  const Verdict* verdict = nullptr; ///< if raised, give up; may be null
  /// Targets have unix addresses, and who listens there must be of this process's user.
  bool same_user = false;
  /// All targets listened before this rank could know of them: when every address of one refuses
  /// connections for 0.1 s, nobody is there any more. Then this is the error; empty: try again
  /// until the deadline, the peer may not have started.
  std::string gone;
  std::function<std::string(int rank)> describe; ///< names a rank in errors; may be empty
};

/// An authenticated, nonblocking connection.
struct MeshLink {
  int rank = 0;
  SocketRole role = SocketRole::kData;
  std::uint32_t channel = 0;
  Fd socket;
  std::string via; ///< the address that was connected to; empty for an accepted connection
};

/// Makes all connections of a plan at the same time and returns them: first the targets, in their
/// order, then the expected ones, in theirs. `listeners` are nonblocking listening sockets, none if
/// nothing is expected; they stay open.
///
/// A target's addresses are tried in order, each a little after the one before, without waiting for
/// that one to fail; the first on which the peer proves its identity wins. A refused connection is
/// tried again until the deadline: the peer may not listen yet. Strangers on the listeners cost a
/// bounded number of sockets, each for a bounded time, and disturb nobody (Acceptor).
///
/// This is the set-up counterpart of wait_until(): its loop is one poll() over everything, which
/// ends at the deadline or when the verdict is raised. The error of a failure names every missing
/// rank and, for each address that was tried, what came of it. Then `made`, if given, receives the
/// connections that exist, so that the caller can tell these peers why there will be no mesh.
Result<std::vector<MeshLink>> connect_mesh(std::span<const Fd> listeners, const MeshPlan& plan,
                                           std::vector<MeshLink>* made = nullptr);

} // namespace whorl
