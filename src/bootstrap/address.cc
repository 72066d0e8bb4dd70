// Rendezvous at "host:port".
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/params.h"
#include "bootstrap/root.h"
#include "bootstrap/root_client.h"
#include "net/listener.h"
#include "net/secret.h"

namespace whorl {
namespace {

/// Reads a secret file and returns the SHA-256 of its contents. Fails if other users may access the
/// file.
Result<Digest> secret_from_file(const std::string& path) {
  const auto bad = [&](std::string_view what) {
    return Status::error(Code::kInvalidUsage, fmt::format("WHORL_SECRET_FILE={}: {}", path, what));
  };
  constexpr std::size_t kMinBytes = 16;
  constexpr std::size_t kMaxBytes = 4096;
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error) return bad(error.message());
  if (status.type() != fs::file_type::regular) return bad("this is not a regular file");
  constexpr fs::perms kOthers = fs::perms::group_all | fs::perms::others_all;
  if ((status.permissions() & kOthers) != fs::perms::none) {
    return bad("other users may access the file; run chmod 600 on it");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return bad(std::strerror(errno));
  std::string text(kMaxBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxBytes) return bad("the file is larger than 4096 bytes");
  // Editors and echo add a newline, other tools do not.
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.size() < kMinBytes) {
    return bad("a secret needs at least 16 bytes; make one with: head -c 32 /dev/urandom | base64");
  }
  Digest key{};
  if (!sha256(std::as_bytes(std::span(text)), &key)) {
    return Status::error(Code::kInternalError, "SHA-256 failed");
  }
  return key;
}

/// Protection of a rendezvous at an address.
struct Protection {
  Identity identity;
  bool same_user = false; ///< true: by the check for one user, where there is no secret
};

Result<Protection> protection_of(std::string_view host_port,
                                 const std::vector<SocketAddress>& addresses) {
  Protection out;
  Digest key{};
  if (const std::string path = param_text(Param::kSecretFile); !path.empty()) {
    const Result<Digest> from_file = secret_from_file(path);
    if (!from_file.ok()) return from_file.status();
    key = *from_file;
  } else {
    const Result<bool> insecure = param_bool(Param::kInsecure);
    if (!insecure.ok()) return insecure.status();
    const bool this_host =
        std::all_of(addresses.begin(), addresses.end(),
                    [](const SocketAddress& address) { return address.is_loopback(); });
    if (!this_host && !*insecure) {
      return Status::error(
          Code::kInvalidUsage,
          fmt::format("a rendezvous at {} needs a secret, because other hosts can reach that "
                      "address: set WHORL_SECRET_FILE to a file of mode 0600 with the same "
                      "contents on all hosts, or WHORL_INSECURE=1 to let anybody join",
                      host_port));
    }
    out.same_user = !*insecure;
  }
  // The host may be spelt in several ways; the port is the same for all. The job depends on it
  // alone, so that two secrets meet as such, and fail at once, rather than as two jobs.
  const std::uint16_t port = addresses.front().port();
  const auto salt = std::as_bytes(std::span(&port, 1));
  Identity open;
  if (!derive_identity(Digest{}, salt, &open) || !derive_identity(key, salt, &out.identity)) {
    return Status::error(Code::kInternalError, "HMAC-SHA256 failed");
  }
  out.identity.job = open.job;
  return out;
}

/// Returns the unix socket that replaces a port of loopback: such a socket shows the user at its
/// other end, and other hosts cannot reach it.
SocketAddress local_name(std::uint16_t port) {
  return SocketAddress::unix_name(fmt::format("whorl.{}", port));
}

/// Returns the addresses with all of loopback replaced by its unix socket, which comes first.
std::vector<SocketAddress> places_of(const std::vector<SocketAddress>& addresses) {
  std::vector<SocketAddress> out;
  for (const SocketAddress& address : addresses) {
    if (!address.is_loopback()) {
      out.push_back(address);
    } else if (out.empty() || out.front().family() != AF_UNIX) {
      out.insert(out.begin(), local_name(address.port()));
    }
  }
  return out;
}

/// Returns whether the text names loopback itself, and not a host whose name leads to loopback on
/// that host only (127.0.1.1 on Debian).
bool is_local_text(std::string_view host_port, const std::vector<SocketAddress>& addresses) {
  if (!std::all_of(addresses.begin(), addresses.end(),
                   [](const SocketAddress& address) { return address.is_loopback(); })) {
    return false;
  }
  const std::string_view host = host_port.substr(0, host_port.rfind(':'));
  const bool is_number =
      host.starts_with('[') || host.find_first_not_of("0123456789.") == std::string_view::npos;
  return is_number || host == "localhost" || host.starts_with("localhost.") ||
         host == "ip6-localhost" || host == "ip6-loopback";
}

/// Returns the addresses at which other hosts may reach the port: those of `addresses` that this
/// host has, or, if there are none, all of this host but loopback.
Result<std::vector<SocketAddress>> outer_addresses(std::string_view host_port,
                                                   const std::vector<SocketAddress>& addresses) {
  std::vector<SocketAddress> out;
  if (is_local_text(host_port, addresses)) return out;
  Result<std::vector<SocketAddress>> own = interface_addresses();
  if (!own.ok()) return own.status();
  for (SocketAddress& address : *own) address.set_port(addresses.front().port());
  for (const SocketAddress& address : addresses) {
    const bool is_own = std::find(own->begin(), own->end(), address) != own->end();
    if (is_own && !address.is_loopback()) out.push_back(address);
  }
  if (!out.empty()) return out;
  std::erase_if(*own, [](const SocketAddress& address) { return address.is_loopback(); });
  return own;
}

/// Opens rank 0's listening sockets: only the unix socket if `this_host`, which is so without a
/// secret.
Result<std::vector<Fd>> listen_for_rendezvous(std::string_view host_port,
                                              const std::vector<SocketAddress>& addresses,
                                              bool this_host) {
  std::vector<SocketAddress> places;
  if (!this_host) {
    Result<std::vector<SocketAddress>> outer = outer_addresses(host_port, addresses);
    if (!outer.ok()) return outer.status();
    places = *std::move(outer);
  }
  places.push_back(local_name(addresses.front().port()));
  std::vector<Fd> out;
  for (const SocketAddress& place : places) {
    Result<Fd> socket = listen_at(place);
    if (!socket.ok()) {
      return socket.status().with_context(
          fmt::format("rank 0 cannot open the rendezvous {}", host_port));
    }
    out.push_back(*std::move(socket));
  }
  return out;
}

/// Looks the address of rank 0 up. A name service may learn of rank 0's host only when that starts:
/// the other ranks ask again while they would repeat a refused connection, until `deadline_ns`.
Result<std::vector<SocketAddress>> look_up(std::string_view host_port, const Attendant& self,
                                           std::uint64_t deadline_ns) {
  constexpr std::uint64_t kAskAgainNs = 200'000'000;
  const bool excused = self.excused();
  const std::uint64_t began_ns = sys().now_ns();
  for (;;) {
    bool may_resolve_later = false;
    Result<std::vector<SocketAddress>> found = parse_address(host_port, &may_resolve_later);
    if (found.ok() || !may_resolve_later || self.rank == 0) return found;
    const std::uint64_t now_ns = sys().now_ns();
    if (now_ns >= deadline_ns) {
      return found.status().with_context(
          fmt::format("rank {} of {} has asked for {} ms where rank 0 is", self.rank, self.nranks,
                      (now_ns - began_ns) / 1'000'000));
    }
    if (!excused && self.excused()) return self.comm_error->status();
    if (self.check) WHORL_TRY(self.check());
    sys().sleep_ns(std::min(kAskAgainNs, deadline_ns - now_ns));
  }
}

} // namespace

Result<Rendezvous> meet_by_address(std::string_view host_port, const Attendant& self) {
  WHORL_TRY(check_attendant(self));
  const std::uint64_t deadline_ns = sys().now_ns() + self.connect_ns();
  Result<std::vector<SocketAddress>> addresses = look_up(host_port, self, deadline_ns);
  if (!addresses.ok()) return addresses.status();
  const Result<Protection> protection = protection_of(host_port, *addresses);
  if (!protection.ok()) return protection.status();
  RootPlace root{.identity = protection->identity,
                 .addresses = places_of(*addresses),
                 .same_user = protection->same_user,
                 .where = fmt::format("in rank 0, at {}", host_port),
                 .gone = "", // rank 0 may start later
                 // A name service that answers late leaves the time for an attempt.
                 .deadline_ns = std::max(deadline_ns, sys().now_ns() + kTellNs)};
  if (self.rank == 0) {
    Result<std::vector<Fd>> listeners =
        listen_for_rendezvous(host_port, *addresses, protection->same_user);
    if (!listeners.ok()) return listeners.status();
    WHORL_TRY(start_root_on(*std::move(listeners), protection->identity,
                            {.join_timeout_ns = self.timeout_ns,
                             .same_user = protection->same_user,
                             .port_is_users = true}));
    root.addresses = {local_name(addresses->front().port())};
  }
  return join_root(self, std::move(root));
}

} // namespace whorl
