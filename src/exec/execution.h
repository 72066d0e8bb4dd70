#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fingerprint.h"
#include "exec/chunk_map.h"
#include "exec/feed.h"
#include "exec/move.h"
#include "exec/trace.h"
#include "schedule/schedule.h"
#include "transports/endpoint.h"

namespace whorl {

/// A schedule bound to memory: all that one rank needs to carry out one operation.
struct Binding {
  const Schedule* schedule = nullptr;
  ChunkMap map;
  MoveKernels kernels;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr; ///< scratch_bytes(), 64-byte aligned
  bool stream_output = false;   ///< write the output with kernels.stream_copy, if any
  Fingerprint fingerprint;      ///< of every message
  /// If not null, gives the buffers piece by piece; then `map` is that of the whole.
  Feed* feed = nullptr;

  std::size_t scratch_bytes() const noexcept {
    return schedule->scratch.size() * map.chunk * kernels.element_size;
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

  /// Records the steps of all operations from now on in `trace`, which outlives this, on the tracks
  /// of their channels or, if it is not 0, on `track`. Null: records nothing.
  void trace_to(Trace* trace, std::uint32_t track) noexcept {
    trace_ = trace;
    track_ = track;
  }
  /// Begins an operation; the binding's buffers outlive it. Peers of the schedule are looked up in
  /// `endpoints`, but not again when the next operation has the same schedule: a schedule keeps its
  /// contents and its endpoints for the life of this Execution.
  void start(const Binding& binding, Endpoints& endpoints);
  /// Begins the last operation again on other buffers, as an operation of its own.
  void restart(const std::byte* input, std::byte* output, std::byte* scratch,
               const Fingerprint& fingerprint);
  /// Runs all lanes as far as they go. kDone when this rank's part is complete and no buffer is
  /// needed any more; kFailed when a message of another operation arrived (see mismatch()) or an
  /// endpoint failed.
  Progress advance() noexcept {
    return binding_.feed == nullptr ? advance_lanes() : advance_pieces();
  }

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
  /// After kFailed: the error of the feed, if it is that one.
  Status feed_error() const { return binding_.feed == nullptr ? Status() : binding_.feed->error(); }

  /// Memory behind this object, with what a restart() of the present operation will add.
  std::size_t memory_bytes() const noexcept;

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
  /// The chunks that a repetition reads or writes.
  struct Operand {
    std::byte* data = nullptr; ///< of the first chunk
    std::uint16_t chunk = 0;   ///< the first one
    bool whole = false;        ///< whether they lie side by side in memory
    /// Field by field. Assigned as a whole, an operand is written with two stores that overlap, and
    /// reading it waits until both have left the store buffer.
    void assign(const Operand& other) noexcept {
      data = other.data;
      chunk = other.chunk;
      whole = other.whole;
    }
  };
  /// Chunks that are sent as one message.
  struct Outgoing {
    Buffer buffer;
    std::size_t window;
    Operand chunks;
    std::size_t bytes;
  };
  /// The operands of a step that is done once in the only window. They are found once for all
  /// repetitions of an operation on the same buffers.
  struct Place {
    Operand src, dst;
    std::size_t bytes;
    std::size_t src_offset, dst_offset; ///< from the start of their buffers
    Phase phase;                        ///< that the step begins with
    bool forwards;                      ///< see forwards()
  };
  /// How far a lane has told its peers where to write.
  struct Offers {
    bool open = false; ///< something may still be offered
    std::size_t window = 0;
    std::uint32_t step = 0;
    std::uint16_t repetition = 0;
  };
  struct LaneRun {
    const Lane* lane;
    std::vector<Endpoint*> endpoints; ///< parallel to lane->peers
    std::vector<Publication> published;
    std::vector<Place> places; ///< of all steps; empty: not known
    LaneTrace trace;
    std::size_t window;
    Operand src, dst;  ///< of the current repetition, where the step has them
    std::size_t bytes; ///< of the current message
    std::uint32_t step;
    std::uint16_t repetition;
    std::uint8_t sent;   ///< peers of the fan that have been sent to
    std::uint8_t covers; ///< steps that the current repetition does, see forwards()
    Phase phase;
    bool finished;
    // See send_ahead().
    std::uint32_t leading;    ///< steps at the start of the schedule that only send input
    std::uint32_t last_sends; ///< the first step after which no step sends
    std::uint32_t ahead;      ///< leading steps of the next window that are done
    std::uint8_t ahead_sent;  ///< peers of the fan of the one after these that have been sent to
    // See offer_places().
    bool takes_offers; ///< whether there is any message that can be placed
    Offers offers;
    std::vector<std::uint64_t> next_message; ///< of each endpoint: first one after `offers`
  };

  Progress advance_lanes() noexcept;
  Progress advance_pieces() noexcept;
  void find_lanes(Endpoints& endpoints);
  void find_places();
  void rebase_places() noexcept;
  bool forwards(const LaneRun& lane, std::size_t step) const noexcept;
  void enter_lanes() noexcept;
  bool run_step(LaneRun& lane) noexcept;
  bool combine(LaneRun& lane, const Step& step) noexcept;
  bool gather_messages(LaneRun& lane, const Step& step) noexcept;
  bool send_from_memory(LaneRun& lane, const Step& step) noexcept;
  bool send_to_fan(LaneRun& lane, const Step& step, const Outgoing& message,
                   std::uint8_t& sent) noexcept;
  [[gnu::noinline]] bool send_ahead(LaneRun& lane) noexcept;
  static void find_ends(LaneRun& lane) noexcept;
  /// A part of a message that is in one piece everywhere.
  struct Piece {
    std::size_t offset = 0; ///< in the message
    std::size_t bytes = 0;
  };
  bool find_targets(LaneRun& lane, const Step& step, int& straight) noexcept;
  void move(const LaneRun& lane, const Step& step, int straight) noexcept;
  void move_piece(const LaneRun& lane, const Step& step, const std::byte* own,
                  std::span<const Target> targets, const Piece& piece) noexcept;
  std::size_t list_operands(const LaneRun& lane, const Step& step, const std::byte* own,
                            const std::byte* dst, std::size_t offset, std::size_t& own_at) noexcept;
  /// Whether what is read from `buffer` is scaled.
  bool scales(Buffer buffer) const noexcept {
    return binding_.kernels.scale != nullptr && buffer == Buffer::kInput;
  }
  bool streams(std::size_t bytes) const noexcept {
    return bytes >= kLeastStreamedBytes && binding_.kernels.stream_copy != nullptr;
  }
  Target find_place(Endpoint& peer, std::size_t bytes) const noexcept;
  Target find_slot(Endpoint& peer, std::size_t bytes) const noexcept;
  void copy_chunks(const Step& step, const Outgoing& message, Target target) noexcept;
  static bool is_placed(const Step& step) noexcept;
  static bool takes_offers(const LaneRun& lane) noexcept;
  void enter_offers(LaneRun& lane) noexcept;
  void offer_places(LaneRun& lane, std::size_t last) noexcept;
  void enter_step(LaneRun& lane) noexcept;
  void enter_repetition(LaneRun& lane) noexcept;
  void finish_repetition(LaneRun& lane) noexcept;
  [[gnu::noinline]] void trace_step(LaneRun& lane) noexcept;
  bool step_finished(const LaneRun& waiter, const Step& step) const noexcept;
  bool may_overwrite(LaneRun& lane, const Step& step) noexcept;
  [[gnu::noinline]] static void forget_released(LaneRun& lane) noexcept;
  bool drained(LaneRun& lane) noexcept;
  static bool publishes_to(const LaneRun& lane, Endpoint& endpoint) noexcept;

  std::span<std::byte> memory(Buffer buffer, std::size_t window,
                              std::uint32_t chunk) const noexcept;
  void find_operands(LaneRun& lane, const Step& step) const noexcept;
  std::size_t find(Operand& operand, Buffer buffer, std::size_t window, std::uint16_t chunk,
                   std::uint32_t count) const noexcept;

  /// Where a buffer begins.
  std::byte* base(Buffer buffer) const noexcept;
  static Phase first_phase(const Step& step) noexcept;

  Binding binding_;
  bool places_known_ = false;            ///< LaneRun::places are of binding_, or empty for good
  bool piece_active_ = false;            ///< a piece of the feed is under way
  std::size_t first_window_ = 0;         ///< of that piece, in the operation
  bool large_messages_ = false;          ///< some may be large enough to be placed
  const Endpoints* endpoints_ = nullptr; ///< that the lanes' endpoints were looked up in
  std::vector<LaneRun> lanes_;
  std::size_t active_lanes_ = 0;
  std::vector<const std::byte*> messages_; ///< payloads, of the fan of the step at hand
  std::vector<const void*> sources_;       ///< operands in ascending order of rank
  std::vector<Target> targets_;            ///< of the step at hand: its own, then of its fan
  Mismatch mismatch_;
  bool failed_ = false;
  Trace* trace_ = nullptr;
  std::uint32_t track_ = 0;
};

} // namespace whorl
