#pragma once

#include <sys/socket.h>

#include <span>
#include <vector>

#include "base/status.h"
#include "base/system.h"
#include "net/address.h"

namespace whorl {

/// A nonblocking socket that is bound to `address` (port 0: any free one), so that nobody else gets
/// it. Connections are refused until start_listening(). The error names the address, the errno and
/// what to do about it.
Result<Fd> bind_at(const SocketAddress& address);

/// Accepts connections from now on.
Status start_listening(const Fd& bound);

/// bind_at() and start_listening().
Result<Fd> listen_at(const SocketAddress& address);

/// Closes the sockets. Nobody can connect any more, even if a child of fork() has copies of them.
void stop_listening(std::vector<Fd>& sockets);

/// A bound socket and the address at which other ranks reach it.
struct Listener {
  Fd socket; ///< invalid if the socket of the entry before serves this address as well
  SocketAddress address;
};

/// Binds a socket at each of the addresses that this host offers to other ranks
/// (local_addresses()), best first, at ports of the kernel's choice: at most `most`, of which
/// loopback, if wanted, is always one. There are none if the host has no network and loopback is
/// not wanted. If none of the addresses of `WHORL_HOST_ADDRESS` is this host's own (behind address
/// translation), one socket for all interfaces serves them.
Result<std::vector<Listener>> bind_for_peers(std::size_t most, bool with_loopback);

/// The user and the process at the other end of a unix socket; −errno if they are unknown. They are
/// those of the process that connected or, seen from there, that began to listen.
int peer_credentials(int fd, ucred* out);

} // namespace whorl
