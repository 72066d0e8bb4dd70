#include "bootstrap/unique_id.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/bytes.h"
#include "net/secret.h"

namespace whorl {
namespace {

constexpr std::uint32_t kVersion = 0x31444957; // "WID1"
constexpr std::size_t kChecksumBytes = 16;
constexpr std::size_t kCheckedBytes = UniqueId::kBytes - kChecksumBytes;
// version 4, job 16, number of addresses 1, addresses 3·19, secret 32, zeros 2
static_assert(4 + 16 + 1 + UniqueId::kMaxAddresses * SocketAddress::kEncodedBytes + 32 + 2 ==
              kCheckedBytes);

Status invalid(std::string_view what) {
  return Status::error(Code::kInvalidArgument,
                       fmt::format("the unique id is not valid: {}. Every rank needs the 128 bytes "
                                   "that whorlGetUniqueId() wrote in one of the processes",
                                   what));
}

} // namespace

Result<std::array<std::byte, UniqueId::kBytes>> UniqueId::encode() const {
  ByteWriter out;
  out.put(kVersion);
  out.put(identity.job);
  const std::size_t count = std::min(addresses.size(), kMaxAddresses);
  out.put(static_cast<std::uint8_t>(count));
  for (std::size_t i = 0; i < kMaxAddresses; ++i) {
    out.put(i < count ? addresses[i].encode()
                      : std::array<std::byte, SocketAddress::kEncodedBytes>{});
  }
  out.put(identity.secret);
  out.put(std::uint16_t{0});
  Digest digest{};
  if (!sha256(out.bytes(), &digest)) return Status::error(Code::kInternalError, "SHA-256 failed");
  std::array<std::byte, kBytes> bytes{};
  std::copy(out.bytes().begin(), out.bytes().end(), bytes.begin());
  std::copy_n(digest.begin(), kChecksumBytes, bytes.begin() + kCheckedBytes);
  return bytes;
}

Result<UniqueId> UniqueId::decode(std::span<const std::byte, kBytes> bytes) {
  if (std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; })) {
    return invalid("it is all zeros, so this rank has not received it");
  }
  ByteReader in(bytes);
  if (in.get<std::uint32_t>() != kVersion) {
    return invalid("it was not made by this version of whorl");
  }
  Digest digest{};
  if (!sha256(bytes.first(kCheckedBytes), &digest)) {
    return Status::error(Code::kInternalError, "SHA-256 failed");
  }
  if (!std::equal(digest.begin(), digest.begin() + kChecksumBytes, bytes.begin() + kCheckedBytes)) {
    return invalid("its checksum is wrong, so it was damaged or cut on the way");
  }
  UniqueId id;
  id.identity.job = in.get<decltype(id.identity.job)>();
  const auto count = in.get<std::uint8_t>();
  if (count < 1 || count > kMaxAddresses) return invalid("it has no address");
  for (std::size_t i = 0; i < kMaxAddresses; ++i) {
    const auto field = in.get_bytes(SocketAddress::kEncodedBytes);
    if (i >= count) continue;
    id.addresses.push_back(SocketAddress::decode(field.first<SocketAddress::kEncodedBytes>()));
    if (!id.addresses.back().valid()) return invalid("it has a malformed address");
  }
  id.identity.secret = in.get<decltype(id.identity.secret)>();
  return id;
}

} // namespace whorl
