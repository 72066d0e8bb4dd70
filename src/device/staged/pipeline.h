#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "device/staged/pinned_memory.h"
#include "engine/request.h"
#include "exec/staging_pipeline.h"
#include "gpu/fault.h"

namespace whorl {

/// Streams of a context in which segments are copied, one for each direction. Operations in these
/// streams wait for copies only, so they complete whatever the program's streams wait for. Kept for
/// the life of the process, unless making them fails. Any thread.
class CopyStreams {
 public:
  /// Returns the copy streams to use beside `stream`, which belongs to `context`. Copy streams and
  /// `stream` have different priorities, because streams of equal priority may share a queue of the
  /// device, in which each operation waits for the ones before it.
  static Result<CopyStreams*> of(CUcontext context, CUstream stream);
  CopyStreams() = default;
  ~CopyStreams();
  CopyStreams(const CopyStreams&) = delete;
  CopyStreams& operator=(const CopyStreams&) = delete;

  CUcontext context() const noexcept { return context_; }
  CUstream in() const noexcept { return in_; }
  CUstream out() const noexcept { return out_; }
  /// Waits until all copies that have been queued are done.
  void synchronize() const noexcept;
  /// Queues a write of `value` to a word, after all copies queued so far in both streams.
  Status write_when_idle(CUdeviceptr word, std::uint32_t value) const;
  /// Returns an error if the device is lost: no copy completes any more.
  Status fault() const { return probe_.look(); }

 private:
  CUcontext context_ = nullptr;
  gpu::FaultProbe probe_;
  CUstream in_ = nullptr, out_ = nullptr;
  CUevent in_idle_ = nullptr;
};

/// Pipeline that copies the data of a request from device memory to pinned memory, segment by
/// segment, and copies the results back:
///
///     in:    copy 0 │ copy 1 │ copy 2 │ copy 3 │ …
///     host:           ─ 0 ──────── │ ─ 1 ──────── │ ─ 2 ── …
///     out:                           copy 0 │       copy 1 │ …
///
/// There is room for kSlots segments. The thread that carries out the operation queues the copies
/// while the operation runs; so the program's stream must have come to the operation first.
class DeviceStagingPipeline final : public StagingPipeline {
 public:
  static constexpr std::size_t kSlots = 3;

  /// Returns the bytes of memory that the pipeline of a request takes on a rank; 0 if it is better,
  /// or necessary, to copy the whole request at once. `segment_bytes` is the size of a segment of
  /// the larger buffer.
  static std::size_t memory_for(const Request& request, const Membership& members,
                                std::size_t segment_bytes) noexcept;
  /// Returns the bytes of memory that suffice for most operations.
  static std::size_t usual_memory(std::size_t segment_bytes) noexcept;
  /// Makes a pipeline. `memory` is registered, aligned to 256 bytes, and outlives the operation.
  static Result<std::shared_ptr<DeviceStagingPipeline>> make(const CopyStreams& streams,
                                                             const Request& request,
                                                             const Membership& members,
                                                             std::span<std::byte> memory);
  DeviceStagingPipeline(const CopyStreams& streams, const Request& request, int rank)
      : streams_(streams), request_(request), rank_(rank) {}
  ~DeviceStagingPipeline() override;

  void begin(const ChunkMap& whole) noexcept override;
  Progress next(Segment& segment) noexcept override;
  void finish() noexcept override;
  Status error() const override { return error_; }

 private:
  /// Buffer on the device.
  struct Side {
    CUdeviceptr data = 0;
    std::size_t blocks = 0; ///< number of blocks; 0: not used
    bool all = false;       ///< true: the buffer has the blocks of all ranks
  };
  /// Part of a block that belongs to a segment, in elements.
  struct Part {
    std::size_t begin; ///< offset in the buffer
    std::size_t count;
  };
  struct Slot {
    std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::vector<ChunkMap::Block> blocks; ///< blocks of the segment, if the request has a table
    CUevent returned = nullptr;          ///< end of the copies of its results
  };

  Status prepare();
  Status explained(Status error) const noexcept;
  Progress wait_for_copy() noexcept;
  Status fetch(std::size_t segment);
  Status deliver(std::size_t segment);
  Part part(const Side& side, std::size_t block, std::size_t segment) const noexcept;
  Side side(const void* data, std::size_t bytes, bool all) const noexcept;
  Slot& slot(std::size_t segment) noexcept { return slots_[segment % used_slots_]; }

  const CopyStreams& streams_;
  const Request request_;
  const int rank_;
  std::span<std::byte> memory_;
  std::unique_ptr<StagingMemory> own_memory_; ///< null: `memory_` was large enough
  Side input_, output_;
  std::atomic<std::uint32_t>* arrived_ = nullptr; ///< arrived segments; written by the stream
  CUdeviceptr arrived_address_ = 0;
  ChunkMap whole_;
  std::size_t element_ = 1;
  std::size_t windows_ = 1; ///< number of windows of a segment
  std::size_t segments_ = 0, next_ = 0;
  std::uint64_t looked_ns_ = 0; ///< time of the last check of the device in next()
  std::size_t used_slots_ = 1;
  std::array<Slot, kSlots> slots_;
  Status error_;
};

} // namespace whorl
