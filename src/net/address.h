#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/system.h"

namespace whorl {

/// Address of a listening stream socket: IPv4, IPv6 or an abstract unix name.
class SocketAddress {
 public:
  /// Bytes of the encoded form: 1 for the family, then port (2) and address (4 or 16), or a unix
  /// name (≤ 18).
  static constexpr std::size_t kEncodedBytes = 19;
  static constexpr std::size_t kMaxUnixNameBytes = kEncodedBytes - 1;

  SocketAddress() = default; ///< makes no address: family() is AF_UNSPEC
  static SocketAddress ipv4(std::array<std::uint8_t, 4> address, std::uint16_t port) noexcept;
  static SocketAddress ipv6(std::array<std::uint8_t, 16> address, std::uint16_t port) noexcept;
  /// Makes the address of an abstract unix socket, visible in this network namespace only. The name
  /// has 1 to 18 bytes without NUL.
  static SocketAddress unix_name(std::string_view name) noexcept;
  static SocketAddress from(const sockaddr* address, socklen_t size) noexcept;
  /// Decodes what encode() wrote. The bytes need not be trusted: family() is AF_UNSPEC if the bytes
  /// are malformed.
  static SocketAddress decode(std::span<const std::byte, kEncodedBytes> bytes) noexcept;
  std::array<std::byte, kEncodedBytes> encode() const noexcept;

  int family() const noexcept { return storage_.ss_family; }
  bool valid() const noexcept { return family() != AF_UNSPEC; }
  bool is_loopback() const noexcept; ///< returns true for unix sockets, too
  /// Returns whether only hosts at one cable can use the address: 169.254.0.0/16 or fe80::/10.
  bool is_link_local() const noexcept;
  std::uint16_t port() const noexcept;
  void set_port(std::uint16_t port) noexcept;
  const sockaddr* data() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const noexcept { return size_; }
  /// Returns "10.0.0.1:4242", "[::1]:4242" or "unix:name".
  std::string text() const;

  friend bool operator==(const SocketAddress& a, const SocketAddress& b) noexcept {
    return a.encode() == b.encode();
  }

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

/// Host and port of a text, before the host is looked up.
struct HostPort {
  std::string_view host; ///< part of the text, without brackets; neither empty nor with NUL
  std::uint16_t port = 0;
};

/// Divides "host:port" or "[v6]:port". The error says what is wrong with the text.
Result<HostPort> split_host_port(std::string_view text);

/// Resolves "host:port" or "[v6]:port" to every address of the name, in the resolver's order. May
/// block on the name service, but not for "localhost", which is 127.0.0.1. The error says what is
/// wrong with the text or the name. `may_resolve_later`, if not null, gets whether the error is
/// that the name service does not know the name, or cannot tell: it may know the name later.
Result<std::vector<SocketAddress>> parse_address(std::string_view text,
                                                 bool* may_resolve_later = nullptr);

/// Address of an interface of this host.
struct InterfaceAddress {
  std::string interface; ///< name as the system shows it: "eth0"
  SocketAddress address; ///< address with port 0
};
/// Lists the addresses of this host's interfaces with their names, in the order of
/// interface_addresses(). Empty: there is no interface that is up.
Result<std::vector<InterfaceAddress>> named_interface_addresses();
/// Returns the interface over which other hosts are to reach this one, by the first of
/// local_addresses(); empty if no interface has that address.
std::string interface_for_other_hosts();

/// Lists the addresses of this host's interfaces, best first, with port 0: interfaces that look
/// physical, then bridges, tunnels (docker, veth, virbr, …) and interfaces without a carrier, IPv4
/// before IPv6 within each; then link-local addresses of IPv4, which only a host at the same cable
/// can use; loopback last. Link-local addresses of IPv6 are left out, because they are of no use
/// without an interface.
Result<std::vector<SocketAddress>> interface_addresses();
/// Returns the place of an interface's address in the order of interface_addresses(), lower is
/// better; nothing for one that is left out. `flags` are those of getifaddrs().
std::optional<int> place_of_interface(std::string_view name, unsigned flags,
                                      const SocketAddress& address) noexcept;

/// Lists the addresses at which other hosts are to reach this one, best first, with port 0: those
/// of the interface that `WHORL_HOST_ADDRESS` names, or what the name or number in it resolves to;
/// without that variable interface_addresses().
Result<std::vector<SocketAddress>> local_addresses();

/// Returns the address that a socket is bound to.
Result<SocketAddress> bound_address(int fd);

/// Describes an errno value or its negative, such as "Connection refused" for ECONNREFUSED.
std::string errno_text(int error);

} // namespace whorl
