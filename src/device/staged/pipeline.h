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
#include "engine/request.h"
#include "exec/staging_pipeline.h"
#include "gpu/fault.h"

namespace whorl {

/// Returns whether a pointer is to memory that the host cannot reach.
bool is_device(const void* pointer) noexcept;

/// Words in host memory by which a stream and the host hand segments to each other. Each counts
/// the segments of all operations of the stream, modulo 2^32.
struct SegmentWords {
  std::atomic<std::uint32_t>* arrived = nullptr;  ///< segments copied in; written by the stream
  std::atomic<std::uint32_t>* finished = nullptr; ///< segments carried out; written by the host
  CUdeviceptr arrived_address = 0, finished_address = 0; ///< addresses of the words on the device
};

/// Pipeline that copies the data of a request from device memory to pinned memory, segment by
/// segment, and copies the results back, all in the program's stream and queued when the call is
/// made:
///
///     stream: in 0 │ in 1 │ in 2 │ wait 0, out 0 │ in 3 │ wait 1, out 1 │ in 4 │ …
///     host:          ─ 0 ────────── │ ─ 1 ─────────────── │ ─ 2 ─────────────── │ …
///
/// There is room for kSlots segments, which are used in turn: the stream copies segment s + kSlots
/// in when it has copied the results of segment s back. Every copy in is followed by a write of the
/// word `arrived`, every copy back follows a wait for the word `finished`. So the thread that
/// carries out the operation only reads and writes words: it makes no call of the driver, which
/// might not return while a stream of the program waits for that thread.
class DeviceStagingPipeline final : public StagingPipeline {
 public:
  static constexpr std::size_t kSlots = 3;
  /// Number of operations that a pipeline may queue. A stream has room for about a thousand, and a
  /// call that queues more waits for the first of them; segments get larger instead. Smaller: more
  /// pinned memory for large requests. Larger: less room for work of the program and for other
  /// streams that share a queue of the device.
  static constexpr std::size_t kMaxQueued = 256;

  /// Returns whether a request may have a pipeline: its buffers are in device memory, and large.
  /// `segment_bytes` is the size of a segment of the larger buffer.
  static bool suits(const Request& request, const Membership& members,
                    std::size_t segment_bytes) noexcept;
  /// Returns the bytes of memory that suffice for most operations.
  static std::size_t usual_memory(std::size_t segment_bytes) noexcept;
  /// Makes a pipeline for a request that suits() and is cut by `whole`; null if it is better to
  /// copy all at once.
  static std::shared_ptr<DeviceStagingPipeline> make(const Request& request,
                                                     const Membership& members,
                                                     const ChunkMap& whole,
                                                     std::size_t segment_bytes);
  DeviceStagingPipeline(const Request& request, const Membership& members, const ChunkMap& whole);

  std::size_t memory_bytes() const noexcept { return kSlots * (slot_input_ + slot_output_); }
  std::uint32_t segments() const noexcept { return static_cast<std::uint32_t>(segments_); }
  /// Gives the pipeline its memory, which is registered, aligned to 256 bytes and outlives the
  /// operation; the words of its stream, in which `before` segments have been queued so far; and
  /// the probe of its context, which is asked while the host waits for a copy.
  void place(std::byte* memory, const SegmentWords& words, std::uint32_t before,
             const gpu::FaultProbe& probe);
  /// Queues all copies in `stream`, the context of which is current. After an error the stream goes
  /// on once the word `finished` has the number of the last segment.
  Status queue(CUstream stream) const;

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

  bool cut(std::size_t segment_bytes) noexcept;
  Progress wait_for_copy() noexcept;
  Status copy_in(std::size_t segment, CUstream stream) const;
  Status copy_back(std::size_t segment, CUstream stream) const;
  Part part(const Side& side, std::size_t block, std::size_t segment) const noexcept;
  Side side(const void* data, std::size_t bytes, bool all) const noexcept;
  std::byte* input_of(std::size_t segment) const noexcept {
    return memory_ + segment % kSlots * (slot_input_ + slot_output_);
  }
  std::byte* output_of(std::size_t segment) const noexcept {
    return input_of(segment) + slot_input_;
  }
  /// Returns the count of segments once segment `segment` is through.
  std::uint32_t count_after(std::size_t segment) const noexcept {
    return before_ + static_cast<std::uint32_t>(segment) + 1;
  }

  const Request request_;
  const int rank_;
  const ChunkMap whole_;
  const std::size_t element_;
  Side input_, output_;
  std::size_t windows_ = 1;                      ///< number of windows of a segment
  std::size_t segments_ = 0;                     ///< number of segments
  std::size_t slot_input_ = 0, slot_output_ = 0; ///< bytes of a segment's input and results
  std::byte* memory_ = nullptr;
  SegmentWords words_;
  std::uint32_t before_ = 0;
  const gpu::FaultProbe* probe_ = nullptr;
  std::size_t next_ = 0;
  std::uint64_t looked_ns_ = 0;         ///< time of the last check of the device in next()
  std::vector<ChunkMap::Block> blocks_; ///< blocks of the segment, if the request has a table
  Status error_;
};

} // namespace whorl
