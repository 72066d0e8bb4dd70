#include "bootstrap/bootstrap.h"

#include <fmt/core.h>

#include <algorithm>

#include "bootstrap/root_client.h"
#include "bootstrap/shared_root.h"

namespace whorl {

Result<Rendezvous> meet_by_store(const Store& store, const Attendant& self) {
  WHORL_TRY(check_attendant(self));
  if (store.set == nullptr || store.get == nullptr) {
    return Status::error(Code::kInvalidArgument, "the store has no set or no get function");
  }
  const std::string key = store.prefix + "whorl/unique_id";
  const std::string in_store = fmt::format("key {} of the store", key);
  SharedRoot root;
  if (self.rank == 0) {
    const Status started = start_shared_root(RootScope::kAnywhere, self.timeout_ns, root);
    const int result = store.set(store.context, key.c_str(), root.bytes.data(), root.size);
    if (!started.ok()) return started;
    if (result != 0) {
      return Status::error(
          Code::kSystemError,
          fmt::format("rank 0: the store's set function returned {} for key {}", result, key));
    }
  } else {
    const std::uint64_t timeout_ms =
        std::min<std::uint64_t>(self.timeout_ns / 1'000'000, INT32_MAX);
    const int result = store.get(store.context, key.c_str(), root.bytes.data(), root.bytes.size(),
                                 &root.size, static_cast<int>(timeout_ms));
    if (result != 0) {
      return Status::error(
          Code::kRemoteError,
          fmt::format("rank {} of {}: the store's get function returned {} for key {}: rank 0 has "
                      "perhaps not started",
                      self.rank, self.nranks, result, key));
    }
    const auto given = std::span(root.bytes).first(std::min(root.size, root.bytes.size()));
    WHORL_TRY(check_shared_root(given).with_context(in_store));
    if (root.size != UniqueId::kBytes) {
      return Status::error(Code::kInvalidUsage,
                           fmt::format("{} has {} bytes instead of {}: something "
                                       "else uses the same prefix",
                                       in_store, root.size, UniqueId::kBytes));
    }
  }
  const Result<UniqueId> id = UniqueId::decode(root.value().first<UniqueId::kBytes>());
  if (!id.ok()) return id.status().with_context(in_store);
  return meet_once(*id, self, "in rank 0",
                   fmt::format("rank 0 has ended, or key {} of the store is left from an earlier "
                               "run; use another prefix for each communicator",
                               key));
}

} // namespace whorl
