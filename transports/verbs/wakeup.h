#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "base/status.h"
#include "transports/verbs/device.h"
#include "transports/verbs/queue.h"

namespace whorl {

/// Descriptor that becomes readable when a device completes something: this side's requests, or a
/// notice of a peer.
class VerbsWakeup {
 public:
  VerbsWakeup() noexcept = default;
  VerbsWakeup(const VerbsWakeup&) = delete;
  VerbsWakeup& operator=(const VerbsWakeup&) = delete;
  /// Requires that the completions which were made with the channel are gone.
  ~VerbsWakeup();

  Status create(VerbsDevice& device);
  ibv_comp_channel* channel() const noexcept { return channel_; }
  int descriptor() const noexcept { return channel_->fd; }

  /// Asks for an event at the next completion of any of `completions`, unless that was asked for
  /// already. Returns whether it was not: what has been completed before gives no event, so the
  /// caller looks for it before it sleeps. Any thread.
  bool arm(std::span<const std::unique_ptr<VerbsCompletions>> completions) noexcept;
  /// Takes the events that are there, so that the descriptor is no longer readable. Any thread.
  void take_events() noexcept;

 private:
  VerbsDevice* device_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  std::atomic<bool> armed_{false}; ///< whether the next completion gives an event
};

} // namespace whorl
