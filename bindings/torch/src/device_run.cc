#include "bindings/torch/src/device_run.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace whorl_torch {
namespace {

using c10::impl::VirtualGuardImpl;

/// Returns whether a stream is being captured; false also where this torch cannot tell.
template <class Device>
bool is_captured(const Device& device, const c10::Stream& stream) {
  if constexpr (requires { device.isStreamCapturing(stream); }) {
    return device.isStreamCapturing(stream);
  }
  return false;
}

/// Tells the allocator of the device that `stream` uses the memory of `tensor`, so that it is not
/// allocated again before the stream has passed this place.
void record_stream(const at::Tensor& tensor, const VirtualGuardImpl& device,
                   const c10::Stream& stream) {
  if (!tensor.defined() || tensor.device().is_cpu()) return;
  if (tensor.is_sparse()) {
    record_stream(tensor._indices(), device, stream);
    return record_stream(tensor._values(), device, stream);
  }
  if (tensor.has_storage()) device.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

} // namespace

DeviceRun::DeviceRun(c10::Device device, std::vector<at::Tensor> tensors)
    : device_(device),
      captured_(is_captured(VirtualGuardImpl(device.type()),
                            VirtualGuardImpl(device.type()).getStream(device))),
      tensors_(std::move(tensors)),
      begin_(device.type()),
      end_(device.type()) {
  begin_.record(VirtualGuardImpl(device.type()).getStream(device));
}

void DeviceRun::queue(DeviceStreams& streams, const std::shared_ptr<Communicator>& communicator,
                      const std::function<void(void* stream)>& body) {
  own_ = streams.on(device_);
  communicator_ = communicator;
  if (!captured_) own_->note_queued(weak_from_this());
  const c10::StreamGuard guard(own_->stream());
  begin_.block(own_->stream());
  const VirtualGuardImpl impl(device_.type());
  for (const at::Tensor& tensor : tensors_) record_stream(tensor, impl, own_->stream());
  tensors_.clear();
  body(own_->handle());
  end_.record(own_->stream());
}

std::optional<c10::Stream> DeviceRun::stream() const {
  if (own_ == nullptr) return std::nullopt;
  return own_->stream();
}

bool DeviceRun::completed() const {
  const RelaxedCapture relaxed;
  if (!end_.query()) return false;
  if (!failure()) succeeded_.store(true);
  return true;
}

void DeviceRun::block_current_stream() const {
  end_.block(VirtualGuardImpl(device_.type()).getStream(device_));
}

bool DeviceRun::wait_until(Deadline deadline) const {
  for (Backoff backoff; !completed(); backoff.sleep()) {
    if (has_passed(deadline)) return false;
  }
  return true;
}

std::exception_ptr DeviceRun::failure() const {
  if (succeeded_.load()) return nullptr;
  const auto communicator = communicator_.lock();
  return communicator == nullptr ? nullptr : communicator->failure();
}

DevicePoint::DevicePoint(const std::vector<c10::Device>& devices) {
  for (const c10::Device& device : devices) {
    events_.emplace_back(device.type());
    events_.back().record(VirtualGuardImpl(device.type()).getStream(device));
  }
}

void DevicePoint::wait() const {
  for (const c10::Event& event : events_) event.synchronize();
}

} // namespace whorl_torch
