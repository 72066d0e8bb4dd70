#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/common/launch_order.h"
#include "device/staged/pinned_memory.h"
#include "gpu/interpreters.h"
#include "gpu/program.h"

namespace whorl {

/// Enables kernels in context `from` to access memory of context `to`, both of this process.
/// Returns an error if their devices cannot.
Status enable_access(CUcontext from, CUcontext to);

/// Memory through which ranks of one process exchange messages on their devices: a region for each
/// rank (gpu/fifo_layout.h), its scratch, and words in host memory by which kernels are stopped and
/// report errors. make() allocates all of it, because allocating synchronises.
class DeviceFifos {
 public:
  /// Device of the communicator.
  struct Device {
    CUcontext context = nullptr;
    std::uint64_t context_id = 0;
    CUdevice device = 0;
    std::vector<std::size_t> ranks;
    const gpu::Interpreters* kernels = nullptr;
    gpu::StopWords* stop = nullptr; ///< words that stop kernels, by their address on the device
    gpu::Report* reports = nullptr;
    std::unique_ptr<LaunchOrder> order;
    CUstream copies = nullptr; ///< stream for set-up
  };

  /// Allocates for ranks in `contexts`. Sizes of regions are multiples of `granularity`. Returns an
  /// error if a device does not reach another one or has no room. May synchronise.
  static Result<std::unique_ptr<DeviceFifos>> make(std::span<const CUcontext> contexts,
                                                   const gpu::FifoLayout& layout,
                                                   std::size_t scratch_bytes,
                                                   std::size_t granularity = 1);
  DeviceFifos() = default;
  DeviceFifos(const DeviceFifos&) = delete;
  DeviceFifos& operator=(const DeviceFifos&) = delete;
  /// Waits for the last launches, also those of graphs. Frees nothing in a context that has been
  /// reset.
  ~DeviceFifos();

  std::span<const Device> devices() const noexcept { return devices_; }
  const gpu::FifoLayout& layout() const noexcept { return layout_; }
  std::byte* region(std::size_t rank) const noexcept { return fifos_[rank]; }
  std::byte* scratch(std::size_t rank) const noexcept { return scratch_[rank]; }
  /// Returns the bytes of scratch memory per rank.
  std::size_t scratch_bytes() const noexcept { return scratch_bytes_; }
  bool made_for(std::span<const CUcontext> contexts) const noexcept;

  /// Copies host memory to newly allocated memory of a device, which is freed with this object. May
  /// synchronise.
  Result<const std::byte*> upload(const Device& device, std::span<const std::byte> bytes);

  /// Makes all kernels that wait give up, now and later. Any thread.
  void stop() noexcept;
  /// Returns the report of a rank's kernel; state is 0 if there is none. Any thread.
  gpu::Report report(std::size_t rank) const noexcept;

 private:
  Status set_up(std::span<const CUcontext> contexts, std::size_t scratch_bytes,
                std::size_t granularity);
  Status reach_each_other();
  Result<std::byte*> allocate(const Device& device, std::size_t bytes, std::size_t zeros);

  struct Words;
  struct Allocation {
    CUcontext context;
    std::uint64_t context_id;
    CUdeviceptr address;
  };
  gpu::FifoLayout layout_;
  std::vector<CUcontext> contexts_; ///< contexts by rank
  std::vector<Device> devices_;
  std::vector<std::byte*> fifos_, scratch_; ///< addresses by rank
  std::size_t scratch_bytes_ = 0;
  std::vector<Allocation> allocations_;
  std::unique_ptr<StagingMemory> words_memory_;
  Words* words_ = nullptr;
};

} // namespace whorl
