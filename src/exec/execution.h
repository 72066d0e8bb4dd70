#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fingerprint.h"
#include "exec/chunk_map.h"
#include "exec/move.h"
#include "exec/staging_pipeline.h"
#include "exec/trace.h"
#include "schedule/schedule.h"
#include "transports/endpoint.h"

namespace whorl {

/// Schedule bound to memory: everything one rank needs to carry out one operation.
struct Binding {
  const Schedule* schedule = nullptr;
  ChunkMap map;
  MoveKernels kernels;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;    ///< scratch_bytes(), 64-byte aligned
  bool nontemporal_output = false; ///< whether kernels.nontemporal_copy, if any, writes the output
  /// Whether the output stays as it is until the first message of each peer is there; for schedules
  /// of an Algorithm with `tells_all` only.
  bool hears_all_first = false;
  Fingerprint fingerprint; ///< fingerprint of every message
  /// Pipeline that brings the buffers segment by segment, or null; `map` is the map of the whole.
  StagingPipeline* pipeline = nullptr;

  std::size_t scratch_bytes() const noexcept {
    return schedule->scratch.size() * map.chunk * kernels.element_size;
  }
};

/// Interpreter of one rank's schedule on the CPU. Resumable: advance() goes as far as possible
/// without waiting and returns. Owned by one thread at a time. Allocates nothing for a schedule
/// that is not larger than earlier ones.
class Execution {
 public:
  /// Source of endpoints, by peer and channel.
  class Endpoints {
   public:
    virtual ~Endpoints() = default;
    virtual Endpoint* find(std::uint32_t peer, std::uint16_t channel) noexcept = 0;
  };

  /// Records the steps of all operations from now on in `trace`, which outlives this, on the tracks
  /// of their lanes or, if it is not 0, on `track`. Null: records nothing.
  void trace_to(Trace* trace, std::uint32_t track) noexcept {
    trace_ = trace;
    track_ = track;
  }
  /// Prepares an operation; the binding's buffers outlive it. Looks up the peers of the schedule in
  /// `endpoints`, but not again when the next operation has the same schedule: a schedule keeps its
  /// contents and its endpoints for the life of this Execution.
  void bind(const Binding& binding, Endpoints& endpoints);
  /// Prepares the last operation again on other buffers, as a new operation.
  void rebind(const std::byte* input, std::byte* output, std::byte* scratch,
              const Fingerprint& fingerprint);
  /// Begins the operation of the last bind() or rebind().
  void begin();
  /// Prepares and begins an operation.
  void start(const Binding& binding, Endpoints& endpoints) {
    bind(binding, endpoints);
    begin();
  }
  /// Runs all lanes as far as they go. Returns kDone when this rank's part is complete and no
  /// buffer is needed any more; kFailed when a message of another operation arrived (see
  /// mismatch()) or an endpoint failed.
  Progress advance() noexcept {
    return binding_.pipeline == nullptr ? advance_lanes() : advance_segments();
  }

  /// Peer that the first unfinished lane waits for.
  struct Waiting {
    int peer = -1; ///< rank; −1: none
    const char* phase = "";
    bool for_device = false; ///< whether this rank's device, and no other rank, is waited for
  };
  Waiting waiting() const noexcept;

  /// Message that does not belong to this operation, after kFailed.
  struct Mismatch {
    int peer = -1; ///< rank; −1: none
    Fingerprint theirs;
    std::size_t bytes = 0, expected_bytes = 0;
  };
  const Mismatch& mismatch() const noexcept { return mismatch_; }
  /// Returns the error of the pipeline after kFailed, or success if something else failed.
  Status pipeline_error() const {
    return binding_.pipeline == nullptr ? Status() : binding_.pipeline->error();
  }

  /// Returns by how many bytes the memory behind this object, with what a rebind() of the present
  /// operation will add, is larger than at the last call, modulo 2^64.
  std::size_t grown() noexcept;

 private:
  /// Source that a peer may still be reading.
  struct Publication {
    Endpoint* endpoint;
    std::uint64_t number; ///< number of the message; released once endpoint->released() reaches it
    const std::byte* begin;
    const std::byte* end;
  };
  enum class Phase : std::uint8_t {
    kCombine, ///< receive, reduce, copy
    kSend,    ///< send from memory to the fan of peers, one after the other
  };
  /// Chunks that a repetition reads or writes.
  struct Operand {
    std::byte* data = nullptr; ///< address of the first chunk
    std::uint16_t chunk = 0;   ///< index of the first chunk
    bool whole = false;        ///< whether the chunks are contiguous in memory
    /// Copies the operand field by field. Assigned as a whole, an operand is written with two
    /// stores that overlap, and reading it waits until both have left the store buffer.
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
  /// Operands of a step that is done once in the only window, found once for all repetitions of an
  /// operation on the same buffers.
  struct StepOperands {
    Operand src, dst;
    std::size_t bytes;
    std::size_t src_offset, dst_offset; ///< offsets from the start of the buffers
    Phase phase;                        ///< phase that the step begins with
    bool fuses_with_next;               ///< result of fuses_with_next()
  };
  /// End of the receive buffers that a lane has exposed to its peers.
  struct ExposedEnd {
    bool open = false; ///< whether more buffers may be exposed
    std::size_t window = 0;
    std::uint32_t step = 0;
    std::uint16_t repetition = 0;
  };
  struct LaneRun {
    const Lane* lane;
    std::vector<Endpoint*> endpoints; ///< parallel to lane->peers
    std::vector<Publication> published;
    std::vector<StepOperands> step_operands; ///< operands of all steps; empty: not known
    LaneTrace trace;
    std::uint32_t track; ///< track in the trace
    std::size_t window;
    Operand src, dst;  ///< operands of the current repetition, where the step has them
    std::size_t bytes; ///< size of the current message
    std::uint32_t step;
    std::uint16_t repetition;
    std::uint8_t sent; ///< number of peers of the fan that have been sent to
    std::uint8_t
        steps_fused; ///< number of steps that the current repetition does, see fuses_with_next()
    Phase phase;
    bool finished;
    // See send_ahead().
    std::uint32_t leading;    ///< number of steps at the start of the schedule that only send input
    std::uint32_t last_sends; ///< first step after which no step sends
    std::uint32_t ahead;      ///< number of leading steps of the next window that are done
    std::uint8_t ahead_sent;  ///< number of peers that the next leading step has sent to
    // See expose_recv_buffers().
    bool can_expose; ///< whether peers can write any message to the output
    ExposedEnd exposed;
    std::vector<std::uint64_t> next_message; ///< first message after `exposed`, by endpoint
  };

  Progress advance_lanes() noexcept;
  Progress advance_segments() noexcept;
  void find_lanes(Endpoints& endpoints);
  void find_step_operands();
  void rebase_step_operands() noexcept;
  bool fuses_with_next(const LaneRun& lane, std::size_t step) const noexcept;
  void enter_lanes() noexcept;
  bool run_step(LaneRun& lane) noexcept;
  bool combine(LaneRun& lane, const Step& step) noexcept;
  bool gather_messages(LaneRun& lane, const Step& step) noexcept;
  void fail_on(std::uint32_t peer, const Fingerprint& theirs, std::size_t bytes,
               std::size_t expected_bytes) noexcept;
  [[gnu::noinline]] bool hear_all() noexcept;
  bool send_from_memory(LaneRun& lane, const Step& step) noexcept;
  bool send_to_fan(LaneRun& lane, const Step& step, const Outgoing& message,
                   std::uint8_t& sent) noexcept;
  [[gnu::noinline]] bool send_ahead(LaneRun& lane) noexcept;
  static void find_ends(LaneRun& lane) noexcept;
  /// Part of a message that is contiguous in every operand and target.
  struct ContiguousPart {
    std::size_t offset = 0; ///< offset in the message
    std::size_t bytes = 0;
  };
  bool find_targets(LaneRun& lane, const Step& step, int& direct_sends) noexcept;
  void move(const LaneRun& lane, const Step& step, int direct_sends) noexcept;
  void move_part(const LaneRun& lane, const Step& step, const std::byte* own,
                 std::span<const Target> targets, const ContiguousPart& part) noexcept;
  std::size_t list_operands(const LaneRun& lane, const Step& step, const std::byte* own,
                            const std::byte* dst, std::size_t offset, std::size_t& own_at) noexcept;
  /// Returns whether data read from `buffer` is scaled.
  bool scales(Buffer buffer) const noexcept {
    return binding_.kernels.scale != nullptr && buffer == Buffer::kInput;
  }
  /// Whether non-temporal stores come into question for a message.
  bool may_bypass_caches(std::size_t bytes) const noexcept {
    return bytes >= kMinNontemporalBytes && binding_.kernels.nontemporal_copy != nullptr;
  }
  Target find_exposed_buffer(Endpoint& peer, std::size_t bytes) const noexcept;
  [[gnu::noinline]] DescriptorSend send_descriptor(LaneRun& lane, Endpoint& peer,
                                                   std::span<const std::byte> source) noexcept;
  Target find_slot(Endpoint& peer, std::size_t bytes) const noexcept;
  void copy_chunks(const Step& step, const Outgoing& message, Target target) noexcept;
  static bool exposes_buffer(const Step& step) noexcept;
  static bool can_expose(const LaneRun& lane) noexcept;
  void begin_exposing(LaneRun& lane) noexcept;
  void expose_recv_buffers(LaneRun& lane, std::size_t last) noexcept;
  void enter_step(LaneRun& lane) noexcept;
  void enter_repetition(LaneRun& lane) noexcept;
  void finish_repetition(LaneRun& lane) noexcept;
  [[gnu::noinline]] void trace_step(LaneRun& lane) noexcept;
  bool step_finished(const LaneRun& waiter, const Step& step) const noexcept;
  bool may_overwrite(LaneRun& lane, const Step& step) noexcept;
  [[gnu::noinline]] static void forget_released(LaneRun& lane) noexcept;
  static bool settled(const LaneRun& lane, Endpoint& endpoint) noexcept;
  bool drained(LaneRun& lane) noexcept;
  static bool publishes_to(const LaneRun& lane, Endpoint& endpoint) noexcept;

  std::span<std::byte> memory(Buffer buffer, std::size_t window,
                              std::uint32_t chunk) const noexcept;
  void find_operands(LaneRun& lane, const Step& step) const noexcept;
  std::size_t find(Operand& operand, Buffer buffer, std::size_t window, std::uint16_t chunk,
                   std::uint32_t count) const noexcept;

  /// Returns the start of a buffer.
  std::byte* base(Buffer buffer) const noexcept;
  static Phase first_phase(const Step& step) noexcept;

  Binding binding_;
  bool step_operands_known_ =
      false; ///< whether LaneRun::step_operands fit binding_ (they may stay empty)
  bool segment_active_ = false;  ///< whether a segment of the pipeline is under way
  std::size_t first_window_ = 0; ///< number of that segment's first window in the operation
  // See hear_all().
  bool heard_all_ = true;       ///< whether the output may be written
  std::size_t heard_lanes_ = 0; ///< number of lanes all of whose peers have been heard
  std::size_t heard_peers_ = 0; ///< number of peers of the next lane that have been
  bool large_messages_ = false; ///< whether some messages may be large enough for exposed buffers
  const Endpoints* endpoints_ = nullptr; ///< source of the lanes' endpoints
  std::vector<LaneRun> lanes_;
  std::size_t active_lanes_ = 0;
  std::vector<const std::byte*> messages_;   ///< payloads from the fan of the current step
  SourceIn messages_in_ = SourceIn::kMemory; ///< place of these payloads
  std::vector<const void*> sources_;         ///< operands in ascending order of rank
  std::vector<Target> targets_; ///< targets of the current step: its own, then those of its fan
  Mismatch mismatch_;
  bool failed_ = false;
  Trace* trace_ = nullptr;
  std::uint32_t track_ = 0;
  std::size_t counted_bytes_ = 0; ///< bytes of memory at the last grown()
};

} // namespace whorl
