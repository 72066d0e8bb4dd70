#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "transports/control/judge.h"
#include "transports/ucx/wire.h"
#include "transports/ucx/worker.h"

namespace whorl {

class UcxEndpoint;

/// Connection to one peer, which the endpoints of all channels share. What is not atomic is guarded
/// by the worker's mutex, or constant once the transport is connected.
struct UcxLink {
  /// Bytes on the way to the peer for which a socket has room, unless the system's settings make
  /// its buffer smaller than the kernel's default of 16 KiB.
  static constexpr std::uint64_t kSurelyTaken = 8192;
  /// Payload of the first hellos: too much to go in one line of shared memory. UCX completes a
  /// connection, for which it needs the peer's processor, only for the first such message.
  static constexpr std::size_t kGreetingBytes = 1024;

  UcxLink(UcxWorker& with, FailureJudge& judged_by, int self_rank, int peer);
  UcxLink(const UcxLink&) = delete;
  UcxLink& operator=(const UcxLink&) = delete;
  ~UcxLink();

  /// Begins the active message `kind` with this header, which stays until `done` is called. Returns
  /// true if the message is complete at once. The caller holds the worker's mutex.
  bool send(unsigned kind, const ucx::Header& header, const void* payload, std::size_t bytes,
            ucp_send_nbx_callback_t done, void* argument) noexcept;
  /// Sends a hello with `bytes` of payload; the caller holds the worker's mutex.
  void greet(std::size_t bytes) noexcept;
  /// Returns whether the last hello is complete.
  bool greeted() const noexcept { return !marking.load(std::memory_order_acquire); }
  /// Returns whether the kernel or the device delivers everything that was sent and is complete,
  /// without further calls of this side. UCX's own flush also waits for the processor of the peer;
  /// so where more than kSurelyTaken bytes may be on the way, a further small message is sent: over
  /// TCP UCX takes that only when all before it is in the kernel.
  bool flushed() noexcept;
  /// Returns whether flushed() would have to wait.
  bool flush_pending() const noexcept { return marking.load(std::memory_order_acquire); }
  /// Records that the peer has the first `position` bytes; the caller holds the worker's mutex.
  void arrived(std::uint64_t position) noexcept {
    if (position > taken.load(std::memory_order_relaxed))
      taken.store(position, std::memory_order_relaxed);
  }
  /// Begins to wait until the peer, or its device, has everything; the caller holds the worker's
  /// mutex.
  void begin_flush() noexcept;
  /// Returns whether begin_flush() has come to its end, or is pointless.
  bool all_delivered() const noexcept {
    return !flushing.load(std::memory_order_acquire) || failed() ||
           left.load(std::memory_order_acquire);
  }
  /// Begins to close the connection without waiting for anything; the caller holds the worker's
  /// mutex.
  void close() noexcept;
  /// Returns whether the connection is closed; the caller holds the worker's mutex.
  bool closed() noexcept;
  /// Records that the connection is broken.
  void fail(ucs_status_t status) noexcept;
  bool failed() const noexcept { return status.load(std::memory_order_acquire) != UCS_OK; }
  /// Finds out why there is no connection any more; `needed` as of FailureJudge. Returns kIdle
  /// while the reason may still come.
  Progress lost(bool needed = true) noexcept;

  UcxWorker& worker;
  FailureJudge& judge;
  const int self;
  const int rank;
  std::uint64_t token_of_self = 0; ///< token in messages from the peer
  std::uint64_t token_of_peer = 0; ///< token in messages to the peer
  ucp_ep_h ep = nullptr;
  void* closing = nullptr;                             ///< request of the closing; null: none
  std::vector<std::unique_ptr<UcxEndpoint>> endpoints; ///< [channel]

  ucx::Header hello;
  std::atomic<ucs_status_t> status{UCS_OK}; ///< error of the connection
  std::atomic<std::uint64_t> greetings{0};  ///< number of hellos from the peer
  std::atomic<bool> left{false};            ///< whether the peer has said goodbye

  std::atomic<std::uint64_t> sent_bytes{0}; ///< bytes handed to UCX
  std::atomic<std::uint64_t> taken{0};      ///< bytes that are in the kernel or have arrived
  std::uint64_t marked_bytes = 0;           ///< value of sent_bytes before the last hello
  std::atomic<bool> marking{false};         ///< whether a hello is under way
  std::atomic<bool> flushing{false};        ///< whether begin_flush() is not at its end
};

} // namespace whorl
