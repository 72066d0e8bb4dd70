#include "bootstrap/shared_root.h"

#include <algorithm>

#include "base/printable.h"

namespace whorl {
namespace {

Status start(RootScope scope, std::uint64_t timeout_ns, SharedRoot& out) {
  const auto id = start_root(scope, timeout_ns);
  if (!id.ok()) return id.status();
  const auto encoded = id->encode();
  if (!encoded.ok()) return encoded.status();
  std::copy(encoded->begin(), encoded->end(), out.bytes.begin());
  out.size = encoded->size();
  return {};
}

/// Allocates nothing, because memory may be what there is too little of.
void write_failure(const Status& why, SharedRoot& out) {
  out.bytes.fill({});
  out.bytes[UniqueId::kBytes] = static_cast<std::byte>(why.code());
  const auto text = std::as_bytes(std::span(why.message()));
  const auto place = std::span(out.bytes).subspan(UniqueId::kBytes + 1);
  const std::size_t size = std::min(text.size(), place.size());
  std::copy_n(text.begin(), size, place.begin());
  out.size = UniqueId::kBytes + 1 + size;
}

} // namespace

Status start_shared_root(RootScope scope, std::uint64_t timeout_ns, SharedRoot& out) {
  Status started = without_exceptions([&] { return start(scope, timeout_ns, out); });
  if (!started.ok()) write_failure(started, out);
  return started;
}

Status check_shared_root(std::span<const std::byte> value) {
  if (value.size() <= UniqueId::kBytes) return {};
  const auto id = value.first<UniqueId::kBytes>();
  if (std::any_of(id.begin(), id.end(), [](std::byte byte) { return byte != std::byte{}; })) {
    return {};
  }
  const auto code = std::to_integer<std::uint32_t>(value[UniqueId::kBytes]);
  const auto text = value.subspan(UniqueId::kBytes + 1);
  return Status::error(
      code >= 1 && code <= kLastErrorCode ? static_cast<Code>(code) : Code::kRemoteError,
      "rank 0 could not open the place where ranks meet: " +
          printable({reinterpret_cast<const char*>(text.data()), text.size()}));
}

} // namespace whorl
