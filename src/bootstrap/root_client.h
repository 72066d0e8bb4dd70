#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/oob.h"
#include "bootstrap/unique_id.h"
#include "net/address.h"
#include "net/stream_socket.h"

namespace whorl {

/// Addresses of a root, and the secret that proves that it is the right one.
struct RootPlace {
  Identity identity; ///< job and secret that root and ranks know
  std::vector<SocketAddress> addresses;
  bool same_user = false; ///< whether the root must be a process of this user, see MeshPlan
  std::string where;      ///< place of the root in errors: "in rank 0"
  std::string gone;       ///< reason in errors why the root may be gone, see MeshPlan
  /// End of the time for connecting, on sys().now_ns()'s clock, if that is before Attendant's.
  std::uint64_t deadline_ns = UINT64_MAX;
};

/// Connects a rank to a root; returns when all ranks are there.
Result<Rendezvous> join_root(const Attendant& self, RootPlace root);

/// Makes a rank's end of a connection to a root after the handshake; join_root() does the rest.
std::unique_ptr<Oob> make_root_oob(const Attendant& self, StreamSocket socket);

/// Meets at the root of an id, which makes one communicator: using the id again is an error.
/// `where` completes "the root of the rendezvous (…)", `gone` says why the root may not be there.
Result<Rendezvous> meet_once(const UniqueId& id, const Attendant& self, const char* where,
                             const std::string& gone);

/// Returns an error unless the number of ranks and the rank of one that takes part fit together.
Status check_attendant(const Attendant& self);

} // namespace whorl
