#pragma once

#include <sys/socket.h>

#include <span>
#include <vector>

#include "base/status.h"
#include "base/system.h"
#include "net/address.h"

namespace whorl {

/// Binds a nonblocking socket to `address` (port 0: any free port), so that no other process gets
/// that address. Connections are refused until start_listening(). The error names the address, the
/// errno and a remedy.
Result<Fd> bind_at(const SocketAddress& address);

/// Makes a bound socket accept connections from now on.
Status start_listening(const Fd& bound);

/// Calls bind_at() and start_listening().
Result<Fd> listen_at(const SocketAddress& address);

/// Shuts the sockets down and closes them. Peers cannot connect any more, even if a child of fork()
/// has copies of the sockets.
void stop_listening(std::vector<Fd>& sockets);

/// Bound socket and the address at which other ranks reach it.
struct Listener {
  Fd socket; ///< invalid if the socket of the entry before serves this address as well
  SocketAddress address;
};

/// Binds a socket at each of the addresses that this host offers to other ranks
/// (local_addresses()), best first, at ports of the kernel's choice: at most `most` sockets, of
/// which loopback, if wanted, is always one. Returns none if the host has no network and loopback
/// is not wanted. If none of the addresses of `WHORL_HOST_ADDRESS` is this host's own (behind
/// address translation), one socket for all interfaces serves them.
Result<std::vector<Listener>> bind_for_peers(std::size_t most, bool with_loopback);

/// Finds the user and the process at the other end of a unix socket: those of the process that
/// connected or, seen from the connecting side, of the process that began to listen. Returns −errno
/// on failure.
int peer_credentials(int fd, ucred* out);

} // namespace whorl
