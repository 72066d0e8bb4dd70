#include "net/address.h"

#include "input.h"
#include "target.h"

namespace whorl::fuzz {
namespace {

/// Requires that an address from the wire is one of those that can be encoded.
void check_address(Input input) {
  std::array<std::byte, SocketAddress::kEncodedBytes> bytes{};
  const auto given = input.take(bytes.size());
  std::copy(given.begin(), given.end(), bytes.begin());
  const SocketAddress address = SocketAddress::decode(bytes);
  const std::string text = address.text();
  require(std::none_of(text.begin(), text.end(), is_control), "a printable address");
  if (!address.valid()) return;
  require(SocketAddress::decode(address.encode()) == address, "an address is encoded as decoded");
  require(
      address.family() == AF_INET || address.family() == AF_INET6 || address.family() == AF_UNIX,
      "a known family");
}

void check_text(std::string_view text) {
  const auto parts = split_host_port(text);
  if (!parts.ok()) return require_error(parts.status());
  require(parts->port > 0, "a port");
  require(!parts->host.empty() && parts->host.find('\0') == parts->host.npos, "a host");
  require(text.ends_with(std::to_string(parts->port)), "the port of the text");
}

} // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all{"127.0.0.1:4242", "[fe80::1]:65535", "node-7.example:1"};
  for (const SocketAddress& address :
       {SocketAddress::ipv4({10, 1, 2, 3}, 4000), SocketAddress::ipv6({0xfd, 1, 2}, 4000),
        SocketAddress::unix_name("whorl.4000")}) {
    all.push_back(bytes_of(address.encode()));
  }
  return all;
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl::fuzz;
  const Input input(data, size);
  check_address(input);
  check_text(input.text());
  return 0;
}
