#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/comm_error.h"
#include "base/status.h"
#include "base/wait.h"

namespace whorl {

/// The key-value space of a launcher, in which the ranks of one launch exchange small values before
/// they are connected to each other. Used by one thread at a time. An object lives until the
/// process ends, because launchers take a client that leaves early for one that died.
class KeyValue {
 public:
  static constexpr std::size_t kMaxValueBytes = 1024;

  virtual ~KeyValue() = default;
  /// Stores `value` under `key` in this rank's name. A key is used once. Other ranks can get the
  /// value after fence().
  virtual Status set(const std::string& key, std::span<const std::byte> value) = 0;
  /// Waits until every rank of the launch has called fence(), at most `timeout_ms`.
  virtual Status fence(std::int64_t timeout_ms) = 0;
  /// Returns the value that `rank` stored under `key` before the last fence().
  virtual Result<std::vector<std::byte>> get(int rank, const std::string& key,
                                             std::int64_t timeout_ms) = 0;
};

/// A process as its PMIx server or its PMI-1 server knows it.
struct StoreProcess {
  int rank = 0;
  int nranks = 1;
  int local_rank = -1;
  int local_nranks = -1;
  std::string job_id;
  KeyValue* store = nullptr; ///< key-value space, which lives until the process ends
};

/// Makes the error of a server, or of the connection to the server.
inline Status launcher_error(std::string sentence) {
  return Status::error(Code::kRemoteError, std::move(sentence));
}

/// Waits until `attempt` returns kDone, at most `timeout_ms`. Sleeps in `waiter` between attempts,
/// because a server takes long. Returns kReady or kTimedOut.
template <class Attempt>
WaitResult wait_for_server(Attempt&& attempt, Waiter& waiter, std::int64_t timeout_ms) {
  const CommError never_set;
  const WaitPolicy policy{.timeout_ns = static_cast<std::uint64_t>(timeout_ms) * 1'000'000,
                          .spins = 0,
                          .yield_ns = 0,
                          .block_ns = 100'000'000};
  return wait_until(std::forward<Attempt>(attempt), policy, never_set, waiter);
}

} // namespace whorl
