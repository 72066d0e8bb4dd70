#include "bootstrap/unique_id.h"

#include "input.h"
#include "net/secret.h"
#include "target.h"

namespace whorl::fuzz {
namespace {

void check(std::span<const std::byte, UniqueId::kBytes> bytes) {
  const auto id = UniqueId::decode(bytes);
  if (!id.ok()) return require_error(id.status());
  require(!id->addresses.empty() && id->addresses.size() <= UniqueId::kMaxAddresses, "addresses");
  const auto again = id->encode();
  require(again.ok(), "an id can be encoded");
  const auto other = UniqueId::decode(*again);
  require(other.ok() && other->addresses == id->addresses &&
              other->identity.job == id->identity.job &&
              other->identity.secret == id->identity.secret,
          "an id is encoded as decoded");
}

} // namespace

std::vector<std::string> seeds() {
  UniqueId id;
  id.identity.secret.fill(std::byte{2});
  std::vector<std::string> all;
  for (const SocketAddress& address :
       {SocketAddress::unix_name("w0123456789abcdef"), SocketAddress::ipv4({10, 1, 2, 3}, 4000),
        SocketAddress::ipv6({0xfd, 1, 2}, 4000)}) {
    id.addresses.push_back(address);
    all.push_back(bytes_of(*id.encode()));
  }
  return all;
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl;
  using namespace whorl::fuzz;
  auto bytes = Input(data, size).take<std::array<std::byte, UniqueId::kBytes>>();
  check(bytes);
  // With the checksum that a sender of these bytes would have made, more than that is checked.
  Digest digest{};
  constexpr std::size_t kChecked = UniqueId::kBytes - 16;
  require(sha256(std::span(bytes).first(kChecked), &digest), "SHA-256");
  std::copy_n(digest.begin(), 16, bytes.begin() + kChecked);
  check(bytes);
  return 0;
}
