#include "node/offer.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/printable.h"
#include "node/fd_message.h"

namespace whorl {
namespace {

constexpr std::uint32_t kVersion = 4;

} // namespace

std::vector<std::byte> NodeHello::encode() const {
  ByteWriter out;
  out.put(kVersion);
  out.put(static_cast<std::uint32_t>(heap));
  return out.bytes();
}

std::optional<NodeHello> NodeHello::decode(std::span<const std::byte> body, std::size_t fds) {
  ByteReader in(body);
  const auto version = in.get<std::uint32_t>();
  const auto heap = in.get<std::uint32_t>();
  if (!in.ok() || in.left() != 0 || version != kVersion || heap > 1 || heap != fds) return {};
  return NodeHello{.heap = heap == 1};
}

NodeOffer NodeOffer::failure(std::string_view reason) {
  return {
      .failed = true, .reason = std::string(reason.substr(0, kMaxMessageBytes / 2)), .entries = {}};
}

std::vector<std::byte> NodeOffer::encode() const {
  ByteWriter out;
  out.put(kVersion);
  out.put(static_cast<std::uint32_t>(failed));
  out.put_bytes(std::as_bytes(std::span(reason)));
  for (const Entry& entry : entries) {
    out.put(static_cast<std::uint32_t>(entry.kind));
    out.put(static_cast<std::uint32_t>(entry.rank));
  }
  return out.bytes();
}

std::optional<NodeOffer> NodeOffer::decode(std::span<const std::byte> body, std::size_t fds,
                                           std::span<const int> members) {
  ByteReader in(body);
  const auto version = in.get<std::uint32_t>();
  const auto failed = in.get<std::uint32_t>();
  if (!in.ok() || version != kVersion || failed > 1) return {};
  if (failed == 1) {
    const auto text = in.get_bytes(in.left());
    return failure(printable({reinterpret_cast<const char*>(text.data()), text.size()}));
  }
  constexpr std::size_t kEntryBytes = 8;
  if (fds == 0 || in.left() % kEntryBytes != 0 || in.left() / kEntryBytes != fds - 1) return {};
  NodeOffer offer;
  while (in.left() > 0) {
    const auto kind = static_cast<FdKind>(in.get<std::uint32_t>());
    const auto rank = in.get<std::uint32_t>();
    if (kind != FdKind::kHeap && kind != FdKind::kPidfd && kind != FdKind::kOutbox) return {};
    if (rank > INT32_MAX ||
        !std::binary_search(members.begin(), members.end(), static_cast<int>(rank))) {
      return {};
    }
    offer.entries.push_back({.kind = kind, .rank = static_cast<int>(rank)});
  }
  return offer;
}

} // namespace whorl
