#include "device/kernel/fifos.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>

#include "base/bytes.h"
#include "device/common/report.h"
#include "gpu/driver.h"

namespace whorl {

using gpu::driver;

Status enable_access(CUcontext from, CUcontext to) {
  const auto device_of = [](CUcontext context, CUdevice& device) -> Status {
    const gpu::ContextGuard guard(context);
    WHORL_CUDA_TRY(cuCtxGetDevice(&device));
    return {};
  };
  CUdevice own = 0, other = 0;
  WHORL_TRY(device_of(from, own));
  WHORL_TRY(device_of(to, other));
  int can = 0;
  WHORL_CUDA_TRY(cuDeviceCanAccessPeer(&can, own, other));
  if (can == 0) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("device {} does not reach the memory of device {}", own, other));
  }
  const gpu::ContextGuard guard(from);
  const CUresult result = driver()->cuCtxEnablePeerAccess(to, 0);
  if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return {};
  return gpu::check(result, fmt::format("peer access from device {} to device {}", own, other));
}

struct DeviceFifos::Words {
  alignas(128) gpu::StopWords stop{};
  alignas(128) gpu::Report reports[gpu::kMaxRanks]{};
};

Result<std::unique_ptr<DeviceFifos>> DeviceFifos::make(std::span<const CUcontext> contexts,
                                                       const gpu::FifoLayout& layout,
                                                       std::size_t scratch_bytes,
                                                       std::size_t granularity) {
  auto regions = std::make_unique<DeviceFifos>();
  regions->layout_ = layout;
  WHORL_TRY(regions->set_up(contexts, scratch_bytes, granularity));
  return regions;
}

Status DeviceFifos::set_up(std::span<const CUcontext> contexts, std::size_t scratch_bytes,
                           std::size_t granularity) {
  contexts_.assign(contexts.begin(), contexts.end());
  for (std::size_t rank = 0; rank < contexts.size(); ++rank) {
    auto device = std::find_if(devices_.begin(), devices_.end(),
                               [&](const Device& d) { return d.context == contexts[rank]; });
    if (device == devices_.end()) {
      device = devices_.emplace(devices_.end());
      device->context = contexts[rank];
      device->context_id = gpu::id_of(contexts[rank]);
    }
    device->ranks.push_back(rank);
  }
  for (Device& device : devices_) {
    const gpu::ContextGuard guard(device.context);
    WHORL_CUDA_TRY(cuCtxGetDevice(&device.device));
    if (words_ == nullptr) {
      auto memory = StagingMemory::take(device.context, sizeof(Words));
      if (!memory.ok()) return memory.status();
      words_ = new ((*memory)->data()) Words{};
      words_memory_ = *std::move(memory);
    }
    CUdeviceptr words = 0;
    WHORL_CUDA_TRY(cuMemHostGetDevicePointer(&words, words_, 0));
    device.stop = reinterpret_cast<gpu::StopWords*>(words + offsetof(Words, stop));
    device.reports = reinterpret_cast<gpu::Report*>(words + offsetof(Words, reports));
    device.order = std::make_unique<LaunchOrder>();
    WHORL_TRY(device.order->prepare());
    WHORL_CUDA_TRY(cuStreamCreateWithPriority(&device.copies, CU_STREAM_NON_BLOCKING, 0));
    const auto kernels = gpu::Interpreters::of(device.context);
    if (!kernels.ok()) return kernels.status();
    device.kernels = *kernels;
  }
  WHORL_TRY(reach_each_other());
  fifos_.resize(contexts.size());
  scratch_.resize(contexts.size());
  scratch_bytes_ = scratch_bytes;
  for (const Device& device : devices_) {
    for (const std::size_t rank : device.ranks) {
      const auto region =
          allocate(device, round_up(layout_.region_bytes(), granularity), layout_.head_bytes());
      if (!region.ok()) return region.status();
      const auto scratch = allocate(device, std::max<std::size_t>(scratch_bytes, 1), 0);
      if (!scratch.ok()) return scratch.status();
      fifos_[rank] = *region;
      scratch_[rank] = *scratch;
    }
  }
  return {};
}

/// Enables each device to write to the regions of all others.
Status DeviceFifos::reach_each_other() {
  for (const Device& from : devices_) {
    for (const Device& to : devices_) {
      if (from.context != to.context) WHORL_TRY(enable_access(from.context, to.context));
    }
  }
  return {};
}

Result<std::byte*> DeviceFifos::allocate(const Device& device, std::size_t bytes,
                                         std::size_t zeros) {
  const gpu::ContextGuard guard(device.context);
  CUdeviceptr address = 0;
  WHORL_TRY(gpu::check(driver()->cuMemAlloc(&address, bytes),
                       fmt::format("cuMemAlloc of {} bytes", bytes)));
  allocations_.push_back({device.context, device.context_id, address});
  if (zeros > 0) {
    WHORL_CUDA_TRY(cuMemsetD8Async(address, 0, zeros, device.copies));
    WHORL_CUDA_TRY(cuStreamSynchronize(device.copies));
  }
  return reinterpret_cast<std::byte*>(address);
}

Result<const std::byte*> DeviceFifos::upload(const Device& device,
                                             std::span<const std::byte> bytes) {
  const auto memory = allocate(device, bytes.size(), 0);
  if (!memory.ok()) return memory.status();
  const gpu::ContextGuard guard(device.context);
  WHORL_CUDA_TRY(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(*memory),
                               reinterpret_cast<CUdeviceptr>(bytes.data()), bytes.size(),
                               device.copies));
  WHORL_CUDA_TRY(cuStreamSynchronize(device.copies));
  return static_cast<const std::byte*>(*memory);
}

DeviceFifos::~DeviceFifos() {
  for (const Device& device : devices_) {
    if (device.order != nullptr) device.order->wait();
    if (device.copies == nullptr || !gpu::is_same_context(device.context, device.context_id)) {
      continue;
    }
    const gpu::ContextGuard guard(device.context);
    static_cast<void>(driver()->cuStreamDestroy(device.copies));
  }
  for (const Allocation& allocation : allocations_) {
    if (!gpu::is_same_context(allocation.context, allocation.context_id)) continue;
    const gpu::ContextGuard guard(allocation.context);
    static_cast<void>(driver()->cuMemFree(allocation.address));
  }
}

bool DeviceFifos::made_for(std::span<const CUcontext> contexts) const noexcept {
  return std::equal(contexts.begin(), contexts.end(), contexts_.begin(), contexts_.end());
}

void DeviceFifos::stop() noexcept { words_->stop.set(); }

gpu::Report DeviceFifos::report(std::size_t rank) const noexcept {
  return read_report(words_->reports[rank]);
}

} // namespace whorl
