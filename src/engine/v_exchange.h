#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "engine/request.h"
#include "engine/transfer.h"
#include "transports/endpoint.h"

namespace whorl {

/// Executor of collectives whose blocks have different sizes: every block is a transfer, and up to
/// kMaxAtOnce transfers of one collective are in progress at the same time. A block without
/// elements is sent, too, as an empty message, so that two ranks that disagree on a count always
/// notice. Receives begin when the first messages of all peers are there, if so many fit at once.
/// Uses the endpoints of a collective channel, so that these collectives stay in order with the
/// others and never receive the messages of whorlSend(). Owned by one thread at a time.
class VExchange {
 public:
  /// Makes an exchange over `endpoints`, a row of Engine::Config::endpoints. The memory that
  /// operations take is added to `counted_bytes`, modulo 2^64. All arguments outlive the exchange.
  VExchange(const Membership& membership, const std::vector<Endpoint*>& endpoints, Trace* trace,
            std::atomic<std::size_t>& counted_bytes);

  /// Begins a request that has blocks; the request outlives the operation. Every message carries
  /// `fingerprint` with its own count.
  Status start(const Request& request, const TransferSchedules& schedules,
               const Fingerprint& fingerprint);
  Progress advance();
  /// First message of a peer that is not one of this call, after advance() has failed.
  struct Mismatch {
    int peer = -1; ///< rank; −1: none
    Fingerprint ours, theirs;
  };
  const Mismatch& mismatch() const noexcept { return mismatch_; }
  /// Returns the error with which advance() has failed, if no transfer has failed.
  const Status& error() const noexcept { return error_; }

  /// Returns the transfer that has failed in advance(), or the first one in progress; null if there
  /// is none.
  const Transfer* current() const noexcept {
    return active_.empty() ? nullptr : active_.all().front();
  }
  /// Returns whom this rank waits for, and in which phase.
  Execution::Waiting waiting() const noexcept;

 private:
  /// Maximum number of transfers in progress: each advance() polls all of them.
  static constexpr std::size_t kMaxAtOnce = 128;

  Status begin(Transfer& transfer, const Blocks::Block& block);
  Status open();
  void copy_own() noexcept;
  bool hear_all();
  /// Returns the rank that is `distance` before this one.
  std::size_t before(int distance) const noexcept {
    return static_cast<std::size_t>((membership_.rank + membership_.nranks - distance) %
                                    membership_.nranks);
  }
  /// Returns whether first messages are missing, without which nothing is received.
  bool hearing() const noexcept { return heard_ < membership_.nranks; }

  const Membership& membership_;
  std::atomic<std::size_t>& counted_bytes_; ///< counter, which orders no other data
  const std::vector<Endpoint*>& endpoints_;
  std::vector<std::unique_ptr<Transfer>> sends_, receives_; ///< transfers by rank; null for this
  ActiveTransfers active_;
  // The operation.
  const Request* request_ = nullptr;
  TransferSchedules schedules_;
  Fingerprint fingerprint_;
  int distance_ = 1; ///< distance of the ranks whose transfers begin next
  int heard_ = 1; ///< distance of the next rank to be heard; number of ranks: receives have begun
  Status error_;
  Mismatch mismatch_;
};

} // namespace whorl
