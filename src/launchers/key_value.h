#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace whorl {

/// The key-value space of a launcher: how the ranks of one launch exchange small values before they
/// are connected to each other. One thread at a time. An object belongs to the process and lives
/// until its end, because launchers take a client that leaves early for one that died.
class KeyValue {
 public:
  static constexpr std::size_t kMaxValueBytes = 1024;

  virtual ~KeyValue() = default;
  /// Stores `value` under `key` in this rank's name. A key is used once. Others see it after
  /// fence().
  virtual Status set(const std::string& key, std::span<const std::byte> value) = 0;
  /// Waits until every rank of the launch has called it, at most `timeout_ms`.
  virtual Status fence(std::int64_t timeout_ms) = 0;
  /// The value that `rank` stored under `key` before the last fence().
  virtual Result<std::vector<std::byte>> get(int rank, const std::string& key,
                                             std::int64_t timeout_ms) = 0;
};

} // namespace whorl
