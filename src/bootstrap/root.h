#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/system.h"
#include "bootstrap/messages.h"
#include "bootstrap/unique_id.h"
#include "net/address.h"

namespace whorl {

/// The root of a rendezvous serves all-gathers to n ranks, which connect to it in a star: O(1)
/// rounds of messages for each all-gather, and one place that knows which ranks are missing.
///
/// The root runs in a background thread ("whorl-root", all signals blocked) from start until all
/// ranks have hung up, and stops listening as soon as all have joined. Each rank says when it
/// leaves, or why it gives up, which ends the rendezvous for all. The first rank that joins gives
/// n. If a rank is missing at the deadline of a waiting rank, dies in the middle, appears twice, or
/// disagrees about n or about the size of a contribution, every rank that is connected or connects
/// later gets an error that names the ranks. A rank that comes after all have joined is refused,
/// and the others are not told. The thread is detached: an unused root does not keep the process
/// from exiting, and ends by itself.

/// Set of ranks that can reach a root.
enum class RootScope {
  kAnywhere,
  kThisHost, ///< ranks of this host, through a unix socket: no port is opened
};

/// Listening sockets of a root.
struct RootDoors {
  std::vector<SocketAddress> addresses; ///< best first
  std::vector<Fd> sockets;              ///< sockets that listen at the addresses
};

/// Listens on a unix socket with a random name for the ranks of this host, and at free ports of
/// this host's best addresses for the others.
Result<RootDoors> open_root_doors(RootScope scope);

/// Time for which an id of whorlGetUniqueId() waits for its first rank.
inline constexpr std::uint64_t kIdLifetimeNs = 3'600'000'000'000;

/// Starts a root with a new random job and secret at open_root_doors(). If no rank comes within
/// `join_timeout_ns`, the root ends.
Result<UniqueId> start_root(RootScope scope = RootScope::kAnywhere,
                            std::uint64_t join_timeout_ns = kIdLifetimeNs);

/// Options of a root.
struct RootTerms {
  std::uint64_t join_timeout_ns = kIdLifetimeNs; ///< limit of the wait for the first rank
  bool same_user = false;     ///< true: serves only processes of this process's user
  bool port_is_users = false; ///< true: ends soon after a failure, so that the port is free again
  /// True: the same ranks may meet here again after a failure, so that ranks which come after it
  /// are those of the next meeting.
  bool meets_again = false;
};

/// Starts a root on listening sockets.
Status start_root_on(std::vector<Fd> listeners, const Identity& identity, const RootTerms& terms);

} // namespace whorl
