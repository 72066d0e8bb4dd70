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

/// Lets kernels in one context of this process reach memory of another one. An error, a sentence,
/// if their devices cannot.
Status enable_access(CUcontext from, CUcontext to);

/// The memory that ranks of one process exchange messages through on their devices: a region for
/// each rank (gpu/fifo_layout.h), its scratch, and a few words in host memory by which kernels are
/// stopped and say why they gave up. All of it is allocated when this is made, because to allocate
/// synchronises.
class DeviceRegions {
 public:
  /// One device of the communicator.
  struct Device {
    CUcontext context = nullptr;
    CUdevice device = 0;
    std::vector<std::size_t> ranks;
    const gpu::Interpreters* kernels = nullptr;
    std::uint32_t* stop = nullptr; ///< as the device reaches it
    gpu::Report* reports = nullptr;
    std::unique_ptr<LaunchOrder> order;
    CUstream copies = nullptr; ///< for set-up
  };

  /// `contexts` are those of the ranks. Regions take whole multiples of `granularity`. An error, a
  /// sentence, if a device does not reach another one or has no room. May synchronise.
  static Result<std::unique_ptr<DeviceRegions>> make(std::span<const CUcontext> contexts,
                                                     const gpu::FifoLayout& layout,
                                                     std::size_t scratch_bytes,
                                                     std::size_t granularity = 1);
  DeviceRegions() = default;
  DeviceRegions(const DeviceRegions&) = delete;
  DeviceRegions& operator=(const DeviceRegions&) = delete;
  /// Waits for the last launches, also of graphs.
  ~DeviceRegions();

  std::span<const Device> devices() const noexcept { return devices_; }
  const gpu::FifoLayout& layout() const noexcept { return layout_; }
  std::byte* region(std::size_t rank) const noexcept { return regions_[rank]; }
  std::byte* scratch(std::size_t rank) const noexcept { return scratch_[rank]; }
  std::size_t scratch_bytes() const noexcept { return scratch_bytes_; } ///< of each rank
  bool made_for(std::span<const CUcontext> contexts) const noexcept;

  /// A copy of host memory in that of a device, which lives as long as this. May synchronise.
  Result<const std::byte*> upload(const Device& device, std::span<const std::byte> bytes);

  /// Lets all kernels leave that wait, now and later. Any thread.
  void stop() noexcept;
  /// What a rank has reported; state is 0 if nothing. Any thread.
  gpu::Report report(std::size_t rank) const noexcept;

 private:
  Status set_up(std::span<const CUcontext> contexts, std::size_t scratch_bytes,
                std::size_t granularity);
  Status reach_each_other();
  Result<std::byte*> allocate(const Device& device, std::size_t bytes, std::size_t zeros);

  struct Words;
  struct Allocation {
    CUcontext context;
    CUdeviceptr address;
  };
  gpu::FifoLayout layout_;
  std::vector<CUcontext> contexts_; ///< by rank
  std::vector<Device> devices_;
  std::vector<std::byte*> regions_, scratch_; ///< by rank
  std::size_t scratch_bytes_ = 0;
  std::vector<Allocation> allocations_;
  std::unique_ptr<StagingMemory> words_memory_;
  Words* words_ = nullptr;
};

} // namespace whorl
