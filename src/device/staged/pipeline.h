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
#include "exec/feed.h"
#include "gpu/fault.h"

namespace whorl {

/// The streams of a context that pieces are copied in, one for each direction. Nothing is queued
/// there that waits for anything but copies, so what is queued is done whatever the program's
/// streams wait for. Kept for the life of the process, unless making them fails; any thread.
class CopyStreams {
 public:
  /// Streams beside `stream`, which belongs to `context`: they have another priority, because
  /// streams of equal priority may share a queue of the device, where each waits for what was
  /// queued before.
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
  /// Writes `value` to a word when all that has been queued in both is done.
  Status write_when_idle(CUdeviceptr word, std::uint32_t value) const;
  /// An error if the device is lost: no copy is done any more.
  Status fault() const { return probe_.look(); }

 private:
  CUcontext context_ = nullptr;
  gpu::FaultProbe probe_;
  CUstream in_ = nullptr, out_ = nullptr;
  CUevent in_idle_ = nullptr;
};

/// Brings the data of a request from device memory to pinned memory, piece by piece, and takes the
/// results back:
///
///     in:    copy 0 │ copy 1 │ copy 2 │ copy 3 │ …
///     host:           ─ 0 ──────── │ ─ 1 ──────── │ ─ 2 ── …
///     out:                           copy 0 │       copy 1 │ …
///
/// There is room for kSlots pieces. All copies are queued while the operation goes on, by the
/// thread that carries it out; so the operation must have its place in the program's stream first,
/// and what was queued there before it must be done.
class DeviceFeed final : public Feed {
 public:
  static constexpr std::size_t kSlots = 3;

  /// How much memory the feed of a request takes on a rank; 0 where it is better, or necessary, to
  /// copy all of it at once. `piece_bytes` are of the larger buffer.
  static std::size_t memory_for(const Request& request, const Membership& members,
                                std::size_t piece_bytes) noexcept;
  /// The most that most operations take.
  static std::size_t usual_memory(std::size_t piece_bytes) noexcept;
  /// `memory` is registered, starts at a multiple of 256 bytes and outlives the operation.
  static Result<std::shared_ptr<DeviceFeed>> make(const CopyStreams& streams,
                                                  const Request& request, const Membership& members,
                                                  std::span<std::byte> memory);
  DeviceFeed(const CopyStreams& streams, const Request& request, int rank)
      : streams_(streams), request_(request), rank_(rank) {}
  ~DeviceFeed() override;

  void begin(const ChunkMap& whole) noexcept override;
  Progress next(Piece& piece) noexcept override;
  void finish() noexcept override;
  Status error() const override { return error_; }

 private:
  /// A buffer on the device.
  struct Side {
    CUdeviceptr data = 0;
    std::size_t blocks = 0; ///< 0: not used
    bool all = false;       ///< has the blocks of all ranks
  };
  /// What of a block belongs to a piece, in elements.
  struct Part {
    std::size_t begin; ///< in the buffer
    std::size_t count;
  };
  struct Slot {
    std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::vector<ChunkMap::Block> blocks; ///< of the piece, if the request has a table
    CUevent returned = nullptr;          ///< its results have been copied
  };

  Status prepare();
  Status explained(Status error) const noexcept;
  Progress wait_for_copy() noexcept;
  Status fetch(std::size_t piece);
  Status deliver(std::size_t piece);
  Part part(const Side& side, std::size_t block, std::size_t piece) const noexcept;
  Side side(const void* data, std::size_t bytes, bool all) const noexcept;
  Slot& slot(std::size_t piece) noexcept { return slots_[piece % used_slots_]; }

  const CopyStreams& streams_;
  const Request request_;
  const int rank_;
  std::span<std::byte> memory_;
  std::unique_ptr<StagingMemory> own_memory_; ///< null: `memory_` is large enough
  Side input_, output_;
  std::atomic<std::uint32_t>* arrived_ = nullptr; ///< pieces; the stream's write
  CUdeviceptr arrived_address_ = 0;
  ChunkMap whole_;
  std::size_t element_ = 1;
  std::size_t windows_ = 1; ///< of a piece
  std::size_t pieces_ = 0, next_ = 0;
  std::uint64_t looked_ns_ = 0; ///< when next() last looked after the device
  std::size_t used_slots_ = 1;
  std::array<Slot, kSlots> slots_;
  Status error_;
};

} // namespace whorl
