#include "net/address.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>

#include "base/descriptor_error.h"
#include "base/params.h"
#include "base/printable.h"

namespace whorl {
namespace {

constexpr std::byte kIpv4{4};
constexpr std::byte kIpv6{6};
constexpr std::byte kUnix{1};

/// Copies the general address structure to a specific one, which avoids questions of aliasing and
/// alignment.
template <class T>
T view(const sockaddr_storage& storage) noexcept {
  T out;
  std::memcpy(&out, &storage, sizeof out);
  return out;
}

/// Returns whether an address leads somewhere only together with an interface, whose number is
/// another one on each host.
bool needs_an_interface(const SocketAddress& address) noexcept {
  return address.family() == AF_INET6 && address.is_link_local();
}

/// Returns whether the resolver may answer otherwise when it is asked again.
bool may_change(int error) noexcept {
#ifdef EAI_NODATA
  if (error == EAI_NODATA) return true;
#endif
  return error == EAI_AGAIN || error == EAI_NONAME;
}

Status resolve(const std::string& host, const std::string& port, std::vector<SocketAddress>* out,
               bool* may_resolve_later = nullptr) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  // The resolver is not asked for this name: without /etc/hosts it waits for the name service.
  const char* const name = host == "localhost" ? "127.0.0.1" : host.c_str();
  const int error = sys().getaddrinfo(name, port.empty() ? nullptr : port.c_str(), hints, &list);
  if (error != 0) {
    if (may_resolve_later != nullptr) *may_resolve_later = may_change(error);
    return Status::error(
        Code::kInvalidArgument,
        fmt::format("the host name \"{}\" cannot be resolved: {}", printable(host),
                    error == EAI_SYSTEM ? errno_text(errno) : gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, &::freeaddrinfo);
  bool needs_interface = false;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    const SocketAddress address = SocketAddress::from(entry->ai_addr, entry->ai_addrlen);
    if (needs_an_interface(address)) {
      needs_interface = true;
    } else if (address.valid() && std::find(out->begin(), out->end(), address) == out->end()) {
      out->push_back(address);
    }
  }
  if (!needs_interface || !out->empty()) return {};
  return Status::error(
      Code::kInvalidUsage,
      fmt::format("\"{}\" is a link-local address of IPv6 (fe80::…), which means nothing on other "
                  "hosts: use another address, for instance a unique local one (fd00::…)",
                  printable(host)));
}

/// Returns the class of an interface, lower is better. 0: it looks physical; 1: a bridge or tunnel
/// that other hosts seldom reach, or an interface without a carrier; 2: the address is link-local,
/// such as that of a management controller's NIC; 3: loopback.
int interface_class(std::string_view name, unsigned flags, const SocketAddress& address) noexcept {
  if ((flags & IFF_LOOPBACK) != 0) return 3;
  if (address.is_link_local()) return 2;
  if ((flags & IFF_RUNNING) == 0) return 1;
  for (const std::string_view prefix : {"docker", "veth", "virbr", "br-", "cni", "flannel", "cali",
                                        "tun", "tap", "podman", "lxc", "lxd", "incus", "cilium"}) {
    if (name.starts_with(prefix)) return 1;
  }
  return 0;
}

} // namespace

SocketAddress SocketAddress::ipv4(std::array<std::uint8_t, 4> address,
                                  std::uint16_t port) noexcept {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  std::memcpy(&in.sin_addr, address.data(), address.size());
  return from(reinterpret_cast<const sockaddr*>(&in), sizeof in);
}

SocketAddress SocketAddress::ipv6(std::array<std::uint8_t, 16> address,
                                  std::uint16_t port) noexcept {
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  in.sin6_port = htons(port);
  std::memcpy(&in.sin6_addr, address.data(), address.size());
  return from(reinterpret_cast<const sockaddr*>(&in), sizeof in);
}

SocketAddress SocketAddress::unix_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > kMaxUnixNameBytes ||
      name.find('\0') != std::string_view::npos) {
    return {};
  }
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  std::memcpy(un.sun_path + 1, name.data(), name.size()); // the leading NUL makes it abstract
  return from(reinterpret_cast<const sockaddr*>(&un),
              static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
}

SocketAddress SocketAddress::from(const sockaddr* address, socklen_t size) noexcept {
  SocketAddress out;
  const bool fits = (address->sa_family == AF_INET && size == sizeof(sockaddr_in)) ||
                    (address->sa_family == AF_INET6 && size == sizeof(sockaddr_in6)) ||
                    (address->sa_family == AF_UNIX && size > offsetof(sockaddr_un, sun_path) + 1 &&
                     size <= offsetof(sockaddr_un, sun_path) + 1 + kMaxUnixNameBytes);
  if (!fits) return out;
  std::memcpy(&out.storage_, address, size);
  out.size_ = size;
  return out;
}

std::array<std::byte, SocketAddress::kEncodedBytes> SocketAddress::encode() const noexcept {
  std::array<std::byte, kEncodedBytes> out{};
  if (family() == AF_INET) {
    const auto in = view<sockaddr_in>(storage_);
    out[0] = kIpv4;
    std::memcpy(&out[1], &in.sin_port, 2); // network byte order on the wire
    std::memcpy(&out[3], &in.sin_addr, 4);
  } else if (family() == AF_INET6) {
    const auto in = view<sockaddr_in6>(storage_);
    out[0] = kIpv6;
    std::memcpy(&out[1], &in.sin6_port, 2);
    std::memcpy(&out[3], &in.sin6_addr, 16);
  } else if (family() == AF_UNIX) {
    const auto un = view<sockaddr_un>(storage_);
    out[0] = kUnix;
    std::memcpy(&out[1], un.sun_path + 1, size_ - offsetof(sockaddr_un, sun_path) - 1);
  }
  return out;
}

SocketAddress SocketAddress::decode(std::span<const std::byte, kEncodedBytes> bytes) noexcept {
  std::uint16_t port = 0;
  std::memcpy(&port, &bytes[1], 2);
  port = ntohs(port);
  if (bytes[0] == kIpv4) {
    std::array<std::uint8_t, 4> address{};
    std::memcpy(address.data(), &bytes[3], address.size());
    return ipv4(address, port);
  }
  if (bytes[0] == kIpv6) {
    std::array<std::uint8_t, 16> address{};
    std::memcpy(address.data(), &bytes[3], address.size());
    return ipv6(address, port);
  }
  if (bytes[0] == kUnix) {
    const auto* const name = reinterpret_cast<const char*>(&bytes[1]);
    const std::size_t size = ::strnlen(name, kMaxUnixNameBytes);
    return unix_name({name, size});
  }
  return {};
}

bool SocketAddress::is_loopback() const noexcept {
  if (family() == AF_UNIX) return true;
  if (family() == AF_INET) return (ntohl(view<sockaddr_in>(storage_).sin_addr.s_addr) >> 24) == 127;
  if (family() == AF_INET6) {
    const auto in = view<sockaddr_in6>(storage_);
    return IN6_IS_ADDR_LOOPBACK(&in.sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&in.sin6_addr) && in.sin6_addr.s6_addr[12] == 127);
  }
  return false;
}

bool SocketAddress::is_link_local() const noexcept {
  if (family() == AF_INET) {
    return ntohl(view<sockaddr_in>(storage_).sin_addr.s_addr) >> 16 == 0xa9fe;
  }
  const auto in = view<sockaddr_in6>(storage_);
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr);
}

std::uint16_t SocketAddress::port() const noexcept {
  if (family() == AF_INET) return ntohs(view<sockaddr_in>(storage_).sin_port);
  if (family() == AF_INET6) return ntohs(view<sockaddr_in6>(storage_).sin6_port);
  return 0;
}

void SocketAddress::set_port(std::uint16_t port) noexcept {
  if (family() == AF_INET) {
    auto in = view<sockaddr_in>(storage_);
    in.sin_port = htons(port);
    std::memcpy(&storage_, &in, sizeof in);
  } else if (family() == AF_INET6) {
    auto in = view<sockaddr_in6>(storage_);
    in.sin6_port = htons(port);
    std::memcpy(&storage_, &in, sizeof in);
  }
}

std::string SocketAddress::text() const {
  std::array<char, INET6_ADDRSTRLEN> number{};
  if (family() == AF_INET) {
    const auto in = view<sockaddr_in>(storage_);
    ::inet_ntop(AF_INET, &in.sin_addr, number.data(), number.size());
    return fmt::format("{}:{}", number.data(), port());
  }
  if (family() == AF_INET6) {
    const auto in = view<sockaddr_in6>(storage_);
    ::inet_ntop(AF_INET6, &in.sin6_addr, number.data(), number.size());
    return fmt::format("[{}]:{}", number.data(), port());
  }
  if (family() == AF_UNIX) {
    const auto un = view<sockaddr_un>(storage_);
    return "unix:" + printable({un.sun_path + 1, size_ - offsetof(sockaddr_un, sun_path) - 1});
  }
  return "no address";
}

namespace {

Status bad_address(std::string_view text, std::string_view what) {
  return Status::error(Code::kInvalidArgument,
                       fmt::format("\"{}\" is not an address of the form host:port or "
                                   "[IPv6]:port: {}",
                                   printable(text), what));
}

} // namespace

Result<HostPort> split_host_port(std::string_view text) {
  const auto bad = [&](std::string_view what) { return bad_address(text, what); };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad("there is no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  unsigned port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port == 0 || port > 65535) {
    return bad("the port is not a number from 1 to 65535");
  }
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad("an IPv6 address needs brackets");
  }
  if (host.empty()) return bad("the host is empty");
  if (host.find('\0') != std::string_view::npos) return bad("the host contains a NUL byte");
  return HostPort{.host = host, .port = static_cast<std::uint16_t>(port)};
}

Result<std::vector<SocketAddress>> parse_address(std::string_view text, bool* may_resolve_later) {
  if (may_resolve_later != nullptr) *may_resolve_later = false;
  const Result<HostPort> parts = split_host_port(text);
  if (!parts.ok()) return parts.status();
  std::vector<SocketAddress> out;
  WHORL_TRY(
      resolve(std::string(parts->host), std::to_string(parts->port), &out, may_resolve_later));
  if (out.empty()) return bad_address(text, "the host has no IPv4 or IPv6 address");
  return out;
}

Result<std::vector<SocketAddress>> local_addresses() {
  const std::string chosen = param_text(Param::kHostAddress);
  if (chosen.empty()) return interface_addresses();
  std::vector<SocketAddress> out;
  if (const auto named = named_interface_addresses(); named.ok()) {
    for (const InterfaceAddress& one : *named) {
      if (one.interface == chosen) out.push_back(one.address);
    }
  }
  if (out.empty()) {
    WHORL_TRY(resolve(chosen, "", &out)
                  .with_context("WHORL_HOST_ADDRESS names no interface that is up, with an address "
                                "for other hosts"));
  }
  return out;
}

std::optional<int> place_of_interface(std::string_view name, unsigned flags,
                                      const SocketAddress& address) noexcept {
  if (needs_an_interface(address)) return std::nullopt;
  return 2 * interface_class(name, flags, address) + (address.family() == AF_INET6 ? 1 : 0);
}

Result<std::vector<InterfaceAddress>> named_interface_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return Status::error(
        Code::kSystemError,
        fmt::format("the network interfaces cannot be listed: {}", descriptor_error(-errno)));
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, &::freeifaddrs);
  struct Candidate {
    int place;
    InterfaceAddress named;
  };
  std::vector<Candidate> candidates;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const SocketAddress address = SocketAddress::from(
        entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (const auto place = place_of_interface(entry->ifa_name, entry->ifa_flags, address)) {
      candidates.push_back({*place, {.interface = entry->ifa_name, .address = address}});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.place < b.place; });
  std::vector<InterfaceAddress> out;
  for (Candidate& candidate : candidates) out.push_back(std::move(candidate.named));
  return out;
}

Result<std::vector<SocketAddress>> interface_addresses() {
  const auto named = named_interface_addresses();
  if (!named.ok()) return named.status();
  std::vector<SocketAddress> out;
  for (const InterfaceAddress& one : *named) out.push_back(one.address);
  if (out.empty()) out.push_back(SocketAddress::ipv4({127, 0, 0, 1}, 0));
  return out;
}

std::string interface_for_other_hosts() {
  const auto named = named_interface_addresses();
  if (!named.ok() || named->empty()) return {};
  if (param_text(Param::kHostAddress).empty()) return named->front().interface;
  const auto wanted = local_addresses();
  if (!wanted.ok() || wanted->empty()) return {};
  for (const InterfaceAddress& one : *named) {
    if (one.address == wanted->front()) return one.interface;
  }
  return {};
}

Result<SocketAddress> bound_address(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  const int result = sys().getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size);
  if (result < 0) {
    return Status::error(Code::kSystemError,
                         fmt::format("getsockname failed: {}", errno_text(result)));
  }
  return SocketAddress::from(reinterpret_cast<const sockaddr*>(&storage), size);
}

std::string errno_text(int error) {
  return std::generic_category().message(error < 0 ? -error : error);
}

} // namespace whorl
