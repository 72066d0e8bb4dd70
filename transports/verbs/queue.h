#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "transports/verbs/device.h"
#include "transports/verbs/settings.h"
#include "transports/verbs/wire.h"

namespace whorl {

/// Part of this side's registered memory.
struct VerbsPiece {
  const void* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t key = 0; ///< local key of the memory
};

/// Write to the peer's memory.
struct VerbsWrite {
  std::array<VerbsPiece, 2> from; ///< one after the other; the second may be empty
  std::uint64_t to = 0;           ///< address in the peer's memory
  std::uint32_t key = 0;          ///< key of that memory
  std::optional<verbs::Notice> notice;
  bool completion = false; ///< whether to ask for a completion of its own
};

/// Receiver of the notices of writes that the peer has made.
class VerbsReceiver {
 public:
  virtual ~VerbsReceiver() = default;
  /// Takes the notice of a write that is in this side's memory as a whole, as everything is that
  /// the peer has written before by the same queue.
  virtual void take(verbs::Notice notice) noexcept = 0;
  /// Takes note that the queue has failed.
  virtual void queue_failed() noexcept = 0;
};

/// Reliable connection to one peer, by which this side writes to the peer's memory: a queue pair,
/// and the count of its requests. Requests are carried out in order and without this side's
/// processor. Only some of them ask for a completion, which stands for all before it as well. Used
/// by one thread at a time.
class VerbsQueue {
 public:
  /// Numbers of requests that are not complete.
  struct Depth {
    std::uint32_t sends = 0;
    std::uint32_t receives = 0; ///< notices of the peer that this side has not seen yet
  };

  /// Makes no queue pair yet.
  explicit VerbsQueue(VerbsDevice& device) noexcept : device_(device) {}
  VerbsQueue(const VerbsQueue&) = delete;
  VerbsQueue& operator=(const VerbsQueue&) = delete;
  ~VerbsQueue();

  /// Makes the queue pair with this depth, or less if the device has less. Completions go to
  /// `completions`, with `index` in the top bits of their number.
  Status create(ibv_cq* completions, std::uint32_t index, const Depth& depth, const VerbsPort& port,
                const VerbsSettings& settings);
  /// Connects to the peer's queue pair at `remote`, and tells `receiver` of the peer's writes from
  /// then on. May take a second, where the kernel has to find the peer's network address first.
  /// Returns 0 or −errno.
  int connect(VerbsReceiver& receiver, const verbs::RailAddress& own,
              const verbs::RailAddress& remote, std::uint64_t remote_memory,
              const verbs::PortAddress& peer, const VerbsPort& port,
              const VerbsSettings& settings) noexcept;
  std::uint32_t number() const noexcept { return pair_->qp_num; }

  /// Whether so many more requests can be posted now.
  bool room(std::uint64_t requests) const noexcept {
    return posted_ - completed_ + requests <= depth_;
  }
  /// Posts a request, for which there is room; drops it if the queue has failed.
  void post(const VerbsWrite& write) noexcept;
  /// Asks for a completion of the first requests up to this number, unless one is on its way.
  void request_completion(std::uint64_t number) noexcept;
  /// Returns the number of requests posted so far.
  std::uint64_t posted() const noexcept { return posted_; }
  /// Returns the number of the first requests that are known to be complete: what they have written
  /// is in the peer's memory.
  std::uint64_t completed() const noexcept { return completed_; }

  /// Returns the device and port, for people.
  std::string port_name() const;
  bool failed() const noexcept { return failed_; }
  /// Returns whether the queue has failed, and the device has reported everything that has arrived.
  bool drained() const noexcept { return failed_ && waiting_receives_ == 0; }
  /// Ends the connection: once it is drained(), nothing of this side is read for the peer any more,
  /// and nothing that the peer writes arrives. Only the first call does anything.
  void close() noexcept;
  /// Describes the first failure.
  std::string failure() const;

  /// Takes a completion, see VerbsCompletions.
  void complete(const ibv_wc& completion) noexcept;
  /// Returns the index of the queue to which a completion belongs.
  static std::uint64_t index_of(const ibv_wc& completion) noexcept {
    return (completion.wr_id & ~kReceive) >> kPositionBits;
  }

 private:
  static constexpr int kPositionBits = 40;
  static constexpr std::uint64_t kReceive = std::uint64_t{1} << 63; ///< mark of receive requests

  void post(ibv_send_wr* request) noexcept;
  void post_receives() noexcept;
  void fail(int error) noexcept;
  static constexpr std::uint64_t kPosition = (std::uint64_t{1} << kPositionBits) - 1;
  /// Returns the number of a request for the device, with its position modulo 2⁴⁰.
  std::uint64_t label(std::uint64_t position) const noexcept {
    return std::uint64_t{index_} << kPositionBits | (position & kPosition);
  }

  VerbsDevice& device_;
  ibv_qp* pair_ = nullptr;
  std::uint32_t index_ = 0;
  std::uint32_t remote_key_ = 0; ///< key of the peer's memory
  std::uint64_t remote_memory_ = 0;
  std::uint32_t inline_bytes_ = 0; ///< largest write whose bytes travel in the request
  VerbsReceiver* receiver_ = nullptr;
  std::uint32_t missing_receives_ = 0; ///< number of receive requests to post
  std::uint32_t waiting_receives_ = 0; ///< number of those that the device has
  std::uint64_t depth_ = 0;
  std::uint64_t stride_ = 1; ///< number of requests for each completion
  std::uint64_t posted_ = 0;
  std::uint64_t signaled_ = 0; ///< the last request that asks for a completion
  std::uint64_t completed_ = 0;

  bool failed_ = false;
  bool ended_ = false;  ///< whether close() was called
  bool closed_ = false; ///< whether close() found it working
  int error_ = 0;       ///< −errno of a post that failed; 0: `status_` is the reason
  ibv_wc_status status_ = IBV_WC_SUCCESS;
  std::uint32_t vendor_code_ = 0;
  int port_ = 1;
};

/// Completions of the queues to all peers of one channel. Used by one thread at a time.
class VerbsCompletions {
 public:
  explicit VerbsCompletions(VerbsDevice& device) noexcept : device_(device) {}
  VerbsCompletions(const VerbsCompletions&) = delete;
  VerbsCompletions& operator=(const VerbsCompletions&) = delete;
  ~VerbsCompletions();

  /// Makes room for so many completions at once. `wakeup` is the channel that tells of the first
  /// completion after arm(); it outlives this object.
  Status create(std::size_t entries, ibv_comp_channel* wakeup);
  ibv_cq* get() const noexcept { return queue_; }
  /// Registers a queue and returns its index for VerbsQueue::create().
  std::uint32_t add(VerbsQueue* queue);
  /// Asks for an event on the channel at the next completion. Any thread.
  void arm() noexcept { static_cast<void>(queue_->context->ops.req_notify_cq(queue_, 0)); }
  /// Hands all completions that are there to their queues.
  void poll() noexcept;

 private:
  VerbsDevice& device_;
  ibv_cq* queue_ = nullptr;
  std::vector<VerbsQueue*> queues_;
};

} // namespace whorl
