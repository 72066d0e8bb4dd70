#include "bootstrap/bootstrap.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <utility>

#include "bootstrap/root.h"
#include "bootstrap/root_client.h"

namespace whorl {
namespace {

/// The ids that this process has made communicators with, and as which rank: the latest ones. A
/// root that is asked again is gone, which says the same later and with less certainty.
class UsedIds {
 public:
  static UsedIds& of_process() noexcept {
    static auto* const ids = new UsedIds; // never destroyed
    return *ids;
  }
  bool contain(const UniqueId& id, int rank) {
    const std::lock_guard lock(mutex_);
    return std::find(uses_.begin(), uses_.end(), Use(id.identity.job, rank)) != uses_.end();
  }
  void add(const UniqueId& id, int rank) {
    const std::lock_guard lock(mutex_);
    uses_.emplace_back(id.identity.job, rank);
    if (uses_.size() > kRemembered) uses_.pop_front();
  }

 private:
  using Use = std::pair<decltype(Identity::job), int>;
  static constexpr std::size_t kRemembered = 1024;
  std::mutex mutex_;
  std::deque<Use> uses_;
};

/// Meets at the root of an id, which makes one communicator: using it again is an error. `gone`
/// says why nobody may be there.
Result<Rendezvous> meet_once(const UniqueId& id, const Attendant& self, const char* where,
                             const std::string& gone) {
  UsedIds& used = UsedIds::of_process();
  if (used.contain(id, self.rank)) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("rank {} of {}: this process has made a communicator with this unique id "
                    "before: {}",
                    self.rank, self.nranks, gone));
  }
  Result<Rendezvous> met = join_root(self, {.identity = id.identity,
                                            .addresses = id.addresses,
                                            .same_user = false,
                                            .where = where,
                                            .gone = gone});
  if (met.ok()) used.add(id, self.rank);
  return met;
}

} // namespace

Result<Rendezvous> meet_by_id(const UniqueId& id, const Attendant& self) {
  WHORL_TRY(check_attendant(self));
  return meet_once(
      id, self, "in the process that made the unique id",
      "a unique id makes one communicator, and only while the process that made it runs "
      "and, unless it is of a meeting point, within an hour; call whorlGetUniqueId() "
      "for each communicator, or give another name at the meeting point, and give its "
      "ranks the new id");
}

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
