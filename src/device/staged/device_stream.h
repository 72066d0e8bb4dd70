#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/staged/pinned_memory.h"
#include "device/staged/pipeline.h"
#include "engine/request.h"
#include "engine/stream.h"
#include "gpu/fault.h"

namespace whorl {

/// Stream of a device, see device_stream().
class DeviceStream final : public Stream {
 public:
  /// Makes a stream for `handle`, a stream of `context`, which is current.
  static Result<std::shared_ptr<DeviceStream>> make(CUstream handle, CUcontext context);

  Status prepare(std::span<const Part> parts, bool alone) override;
  Result<std::uint64_t> issue(std::span<const Part> parts) override;
  Status follow(std::uint64_t number) override;
  /// Returns the memory to the pool if the stream has passed all operations. Not to be called while
  /// operations are being queued.
  void release_memory() {
    if (has_passed_all()) memory_.clear();
  }
  /// Returns whether the stream has passed all operations. Not to be called while operations are
  /// being queued.
  bool has_passed_all() const noexcept;
  std::optional<Device> device() const noexcept override { return Device{handle_, context_}; }
  bool may_start(std::uint64_t number) const noexcept override {
    const std::uint32_t ready = words_->ready.load(std::memory_order_acquire); // the stream's write
    return static_cast<std::int32_t>(ready - static_cast<std::uint32_t>(number)) >= 0;
  }
  Status fault() const override { return probe_.look(); }
  std::uint64_t block_ns() const noexcept override { return 20'000; }

 protected:
  void release(std::uint64_t number) noexcept override;

 private:
  /// Words that the stream writes, and words that the host writes.
  struct Words {
    alignas(64) std::atomic<std::uint32_t> ready{0};
    std::atomic<std::uint32_t> passed{0}, arrived{0};
    alignas(64) std::atomic<std::uint32_t> done{0};
    std::atomic<std::uint32_t> finished{0};
  };
  struct Copy {
    CUdeviceptr to, from;
    std::size_t bytes;
  };
  /// Copies and memory of an operation.
  struct Staging {
    std::vector<Copy> inputs, results;
    std::size_t used = 0;                            ///< bytes used of the memory
    std::shared_ptr<DeviceStagingPipeline> pipeline; ///< null: all is copied at once
  };

  struct Extents;

  Status make_words();
  Result<std::byte*> take(Staging& staging, std::size_t bytes);
  Status replace(Staging& staging, const Part& part, bool alone);
  Status replace_buffers(Staging& staging, Request& request, const Extents& in, const Extents& out);
  Status replace_blocks(Staging& staging, Request& request);
  Result<bool> pipeline(Staging& staging, const Part& part);
  Status queue_results(std::uint64_t number);
  Status copy(std::span<const Copy> copies) const;

  CUstream handle_ = nullptr;
  CUcontext context_ = nullptr;
  gpu::FaultProbe probe_;
  std::unique_ptr<StagingWords> words_memory_;
  Words* words_ = nullptr; ///< words in words_memory_; null until an operation is prepared
  CUdeviceptr ready_ = 0, done_ = 0, passed_ = 0;
  std::uint64_t issued_ = 0;
  Staging staging_;               ///< copies of the operation that has been prepared
  std::size_t segment_bytes_ = 0; ///< 0: operations are not cut into segments
  SegmentWords segment_words_;
  std::uint32_t segments_ = 0; ///< number of segments of all operations issued, modulo 2^32
  std::mutex segmented_mutex_;
  /// Maximum number of operations under way that are cut into segments: each has up to kMaxQueued
  /// entries in the stream, and a call that finds the stream full waits, while it keeps other calls
  /// of the process waiting.
  static constexpr std::size_t kMaxSegmented = 2;
  /// Operations under way that are cut into segments: value of segments_ after each, by number.
  std::map<std::uint64_t, std::uint32_t> segmented_;
  /// Staging memory, of which the last is in use. The stream orders its uses: the results of an
  /// operation are copied back before the inputs of the next one are copied to it.
  std::vector<std::unique_ptr<StagingMemory>> memory_;
};

/// Returns memory of idle streams to the pool: streams keep it for their next operation, but the
/// program may have destroyed them.
void release_idle_memory();

} // namespace whorl
