#include "bootstrap/bootstrap.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "bootstrap/root.h"
#include "bootstrap/root_client.h"

namespace whorl {

Result<Rendezvous> meet_by_store(const Store& store, const Attendant& self) {
  WHORL_TRY(check_attendant(self));
  if (store.set == nullptr || store.get == nullptr) {
    return Status::error(Code::kInvalidArgument, "the store has no set or no get function");
  }
  const std::string key = store.prefix + "whorl/unique_id";
  std::array<std::byte, UniqueId::kBytes> bytes{};
  if (self.rank == 0) {
    const Result<UniqueId> id = start_root(RootScope::kAnywhere, self.timeout_ns);
    if (!id.ok()) return id.status();
    const Result<std::array<std::byte, UniqueId::kBytes>> encoded = id->encode();
    if (!encoded.ok()) return encoded.status();
    bytes = *encoded;
    const int result = store.set(store.context, key.c_str(), bytes.data(), bytes.size());
    if (result != 0) {
      return Status::error(
          Code::kSystemError,
          fmt::format("rank 0: the store's set function returned {} for key {}", result, key));
    }
  } else {
    std::size_t size = 0;
    const std::uint64_t timeout_ms =
        std::min<std::uint64_t>(self.timeout_ns / 1'000'000, INT32_MAX);
    const int result = store.get(store.context, key.c_str(), bytes.data(), bytes.size(), &size,
                                 static_cast<int>(timeout_ms));
    if (result != 0) {
      return Status::error(
          Code::kRemoteError,
          fmt::format("rank {} of {}: the store's get function returned {} for key {}: rank 0 has "
                      "perhaps not started",
                      self.rank, self.nranks, result, key));
    }
    if (size != bytes.size()) {
      return Status::error(Code::kInvalidUsage,
                           fmt::format("key {} of the store has {} bytes instead of {}: something "
                                       "else uses the same prefix",
                                       key, size, bytes.size()));
    }
  }
  const Result<UniqueId> id = UniqueId::decode(bytes);
  if (!id.ok()) return id.status().with_context(fmt::format("key {} of the store", key));
  return meet_once(*id, self, "in rank 0",
                   fmt::format("rank 0 has ended, or key {} of the store is left from an earlier "
                               "run; use another prefix for each communicator",
                               key));
}

} // namespace whorl
