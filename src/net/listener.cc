#include "net/listener.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/descriptor_error.h"
#include "base/params.h"

namespace whorl {
namespace {

/// Says who listens at an address, as far as that can be found out, and what to do.
std::string who_listens(const SocketAddress& address) {
  if (address.family() == AF_UNIX) {
    const Fd probe(sys().socket(AF_UNIX, SOCK_STREAM));
    ucred owner{};
    if (probe.valid() && sys().connect(probe.get(), address.data(), address.size()) >= 0 &&
        peer_credentials(probe.get(), &owner) >= 0) {
      return owner.pid == ::getpid()
                 ? fmt::format(
                       "this process (pid {}) listens there itself: choose another port, "
                       "or try again two seconds after a creation there has failed",
                       owner.pid)
                 : fmt::format(
                       "a process of user {} (pid {}) listens there: choose another port, "
                       "or end that process",
                       owner.uid, owner.pid);
    }
  }
  return "another process listens there: choose another port, or end that process";
}

Status cannot_listen(const SocketAddress& address, int error) {
  std::string remedy;
  if (error == -EADDRINUSE && address.family() != AF_UNIX && address.port() == 0) {
    remedy =
        "; sockets occupy all ports from which the system may choose one: end what holds them, "
        "or widen net.ipv4.ip_local_port_range with sysctl";
  } else if (error == -EADDRINUSE) {
    remedy = "; " + who_listens(address);
  } else if (error == -EADDRNOTAVAIL) {
    remedy = "; this host does not have that address";
  } else if (error == -EACCES) {
    remedy = "; ports below 1024 need privileges: choose a higher one";
  }
  return Status::error(Code::kSystemError, fmt::format("cannot listen at {}: {}{}", address.text(),
                                                       descriptor_error(error), remedy));
}

/// Binds one socket for all interfaces, which serves all `addresses` that lead to this host.
Result<std::vector<Listener>> bind_everywhere(std::vector<SocketAddress> addresses) {
  Result<Fd> socket = bind_at(SocketAddress::ipv6({}, 0));
  if (!socket.ok()) socket = bind_at(SocketAddress::ipv4({}, 0));
  if (!socket.ok()) return socket.status();
  const Result<SocketAddress> bound = bound_address(socket->get());
  if (!bound.ok()) return bound.status();
  if (bound->family() == AF_INET) { // no IPv6 on this socket
    std::erase_if(addresses, [](const SocketAddress& a) { return a.family() == AF_INET6; });
  }
  std::vector<Listener> out;
  for (SocketAddress& address : addresses) {
    address.set_port(bound->port());
    out.push_back({Fd(), address});
  }
  if (!out.empty()) out.front().socket = *std::move(socket);
  return out;
}

} // namespace

Result<Fd> bind_at(const SocketAddress& address) {
  Fd socket(sys().socket(address.family(), SOCK_STREAM));
  int result = socket.get();
  if (result >= 0 && address.port() != 0) {
    // With SO_REUSEADDR a port whose last connections are in TIME_WAIT can be bound, but not one
    // with a listener. A port of the kernel's choice does not need the option, and without the
    // option no other socket can bind the port.
    result = sys().setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  }
  if (result >= 0 && address.family() == AF_INET6) {
    const sockaddr_in6* const in = reinterpret_cast<const sockaddr_in6*>(address.data());
    const bool any = IN6_IS_ADDR_UNSPECIFIED(&in->sin6_addr);
    result = sys().setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, any ? 0 : 1);
  }
  if (result >= 0) result = sys().bind(socket.get(), address.data(), address.size());
  if (result < 0) return cannot_listen(address, result);
  return socket;
}

Status start_listening(const Fd& bound) {
  // Room for a burst of all ranks at once; the kernel caps it at net.core.somaxconn. A connection
  // that finds the queue full is tried again by TCP only after a second.
  constexpr int kBacklog = 4096;
  const int result = sys().listen(bound.get(), kBacklog);
  if (result >= 0) return {};
  const Result<SocketAddress> address = bound_address(bound.get());
  return cannot_listen(address.ok() ? *address : SocketAddress(), result);
}

Result<Fd> listen_at(const SocketAddress& address) {
  Result<Fd> socket = bind_at(address);
  if (socket.ok()) WHORL_TRY(start_listening(*socket));
  return socket;
}

void stop_listening(std::vector<Fd>& sockets) {
  for (const Fd& socket : sockets) static_cast<void>(sys().shutdown(socket.get()));
  sockets.clear();
}

Result<std::vector<Listener>> bind_for_peers(std::size_t most, bool with_loopback) {
  Result<std::vector<SocketAddress>> local = local_addresses();
  if (!local.ok()) return local.status();
  std::vector<SocketAddress>& addresses = *local;
  const bool chosen = !param_text(Param::kHostAddress).empty();
  if (!with_loopback) {
    std::erase_if(addresses, [](const SocketAddress& a) { return a.is_loopback(); });
  }
  if (addresses.size() > most) {
    const std::ptrdiff_t kept_last = addresses.back().is_loopback() ? 1 : 0; // loopback is the last
    addresses.erase(addresses.begin() + static_cast<std::ptrdiff_t>(most) - kept_last,
                    addresses.end() - kept_last);
  }
  std::vector<Listener> out;
  Status failure;
  for (const SocketAddress& address : addresses) {
    Result<Fd> socket = bind_at(address);
    const Result<SocketAddress> bound =
        socket.ok() ? bound_address(socket->get()) : Result<SocketAddress>(socket.status());
    if (bound.ok()) {
      out.push_back({*std::move(socket), *bound});
    } else {
      failure = bound.status();
    }
  }
  if (out.empty() && chosen && !addresses.empty()) return bind_everywhere(std::move(addresses));
  if (out.empty() && !failure.ok()) return failure;
  return out;
}

int peer_credentials(int fd, ucred* out) {
  socklen_t size = sizeof *out;
  return sys().getsockopt(fd, SOL_SOCKET, SO_PEERCRED, out, &size);
}

} // namespace whorl
