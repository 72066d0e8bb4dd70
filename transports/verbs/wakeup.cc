#include "transports/verbs/wakeup.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <cerrno>

#include "net/address.h"

namespace whorl {

VerbsWakeup::~VerbsWakeup() {
  if (channel_ != nullptr) device_->api->destroy_comp_channel(channel_);
}

Status VerbsWakeup::create(VerbsDevice& device) {
  device_ = &device;
  channel_ = device.api->create_comp_channel(device.context);
  if (channel_ != nullptr) {
    const int flags = ::fcntl(channel_->fd, F_GETFL);
    if (flags >= 0 && ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) == 0) return {};
  }
  return Status::error(Code::kSystemError,
                       fmt::format("the RDMA device {} gives no descriptor to sleep on: {}; is "
                                   "the limit on open files (ulimit -n) large enough?",
                                   device.name, errno_text(-errno)));
}

bool VerbsWakeup::arm(std::span<const std::unique_ptr<VerbsCompletions>> completions) noexcept {
  if (armed_.load(std::memory_order_acquire)) return false; // pairs with release below
  for (const auto& each : completions) each->arm();
  armed_.store(true, std::memory_order_release);
  return true;
}

void VerbsWakeup::take_events() noexcept {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (device_->api->get_cq_event(channel_, &queue, &context) == 0) {
    device_->api->ack_cq_events(queue, 1);
    armed_.store(false, std::memory_order_release); // pairs with acquire in arm()
  }
}

} // namespace whorl
