#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fingerprint.h"
#include "exec/chunk_map.h"
#include "kernels/reduce.h"
#include "schedule/schedule.h"
#include "transports/transport.h"

namespace whorl {

/// A schedule bound to memory: all that one rank needs to carry out one operation.
struct Binding {
  const Schedule* schedule = nullptr;
  ChunkMap map;
  std::size_t element_size = 1;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;  ///< scratch_bytes(), 64-byte aligned
  ReduceKernel reduce = nullptr; ///< unused where nothing is reduced
  int divisor = 1;               ///< of steps with kFinal
  Fingerprint fingerprint;       ///< of every message

  std::size_t scratch_bytes() const noexcept {
    return schedule->scratch.size() * map.chunk * element_size;
  }
};

/// Interprets one rank's schedule on the CPU. Resumable: advance() does what can be done without
/// waiting and comes back. Owned by one thread at a time. Nothing is allocated once an Execution
/// has been started on schedules of this size before.
class Execution {
 public:
  /// Finds the endpoint of a (peer, channel).
  class Endpoints {
   public:
    virtual ~Endpoints() = default;
    virtual Endpoint* find(std::uint32_t peer, std::uint16_t channel) noexcept = 0;
  };

  /// Begins an operation; the binding's schedule, buffers and endpoints outlive it. Peers of the
  /// schedule are looked up in `endpoints`.
  void start(const Binding& binding, Endpoints& endpoints);
  /// Runs all lanes as far as they go. kDone when this rank's part is complete and no buffer is
  /// needed any more; kFailed when a message of another operation arrived (see mismatch()) or an
  /// endpoint failed.
  Progress advance() noexcept;

  /// Whom and what the first unfinished lane waits for.
  struct Waiting {
    int peer = -1; ///< −1: nobody
    const char* phase = "";
    std::size_t window = 0;
    int channel = 0, step = 0;
  };
  Waiting waiting() const noexcept;

  /// The message that does not belong to this operation, after kFailed.
  struct Mismatch {
    int peer = -1; ///< −1: none
    Fingerprint theirs;
    std::size_t bytes = 0, expected_bytes = 0;
  };
  const Mismatch& mismatch() const noexcept { return mismatch_; }

 private:
  /// A source that a peer may still be reading.
  struct Publication {
    Endpoint* endpoint;
    std::uint64_t number; ///< released once endpoint->released() reaches it
    const std::byte* begin;
    const std::byte* end;
  };
  enum class Phase : std::uint8_t {
    kCombine, ///< receive, reduce, copy
    kSend,    ///< send what lies in memory to the fan of peers, one after the other
  };
  /// Chunks that are sent as one message.
  struct Outgoing {
    Buffer buffer;
    std::size_t window;
    std::uint32_t chunk; ///< the first one
    std::size_t bytes;
  };
  struct LaneRun {
    const Lane* lane;
    std::vector<Endpoint*> endpoints; ///< parallel to lane->peers
    std::vector<Publication> published;
    std::size_t window;
    std::size_t bytes; ///< of the current message
    std::uint32_t step;
    std::uint16_t repetition;
    std::uint16_t chunk, dst_chunk; ///< of the current repetition
    std::uint8_t sent;              ///< peers of the fan that have been sent to
    Phase phase;
    bool finished;
    // See send_ahead().
    std::uint32_t leading;    ///< steps at the start of the schedule that only send input
    std::uint32_t last_sends; ///< the first step after which no step sends
    std::uint32_t ahead;      ///< leading steps of the next window that are done
    std::uint8_t ahead_sent;  ///< peers of the fan of the one after these that have been sent to
  };

  bool run_step(LaneRun& lane) noexcept;
  bool combine(LaneRun& lane, const Step& step) noexcept;
  bool gather_messages(LaneRun& lane, const Step& step) noexcept;
  bool send_from_memory(LaneRun& lane, const Step& step) noexcept;
  bool send_to_fan(LaneRun& lane, const Step& step, const Outgoing& message,
                   std::uint8_t& sent) noexcept;
  bool send_ahead(LaneRun& lane) noexcept;
  static void find_ends(LaneRun& lane) noexcept;
  void move(const LaneRun& lane, const Step& step, std::span<std::byte> slot) noexcept;
  void enter_step(LaneRun& lane) noexcept;
  void enter_repetition(LaneRun& lane) noexcept;
  void finish_repetition(LaneRun& lane) noexcept;
  bool step_finished(const LaneRun& waiter, const Step& step) const noexcept;
  bool may_overwrite(LaneRun& lane, const Step& step) noexcept;
  bool drained(LaneRun& lane) noexcept;
  static bool publishes_to(const LaneRun& lane, Endpoint& endpoint) noexcept;

  std::byte* address(Buffer buffer, std::size_t window, std::uint32_t chunk) const noexcept;
  std::size_t chunk_bytes(Buffer buffer, std::size_t window, std::uint32_t chunk) const noexcept;
  /// The `count` chunks as one piece of memory; empty data if they do not lie side by side.
  std::span<std::byte> contiguous(Buffer buffer, std::size_t window, std::uint32_t chunk,
                                  std::uint32_t count) const noexcept;

  Binding binding_;
  std::vector<LaneRun> lanes_;
  std::size_t active_lanes_ = 0;
  std::vector<Message> messages_;    ///< of the fan of the step at hand
  std::vector<const void*> sources_; ///< operands in ascending order of rank
  Mismatch mismatch_;
  bool failed_ = false;
};

} // namespace whorl
