#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/membership.h"
#include "device/common/group.h"

// The part of making a communicator that concerns devices.
namespace whorl {

class FdChannel;

/// Finds or makes the group of a communicator whose ranks are all in this process, or all on this
/// host with a common `board` (Node::board(), and `fd_channel` is Node::fd_channel()); returns null
/// for other communicators, and without a driver. Every rank calls it. All arguments but `rules`
/// outlive the group.
std::shared_ptr<DeviceGroup> join_device_group(const Membership& membership,
                                               std::span<std::byte> board, FdChannel* fd_channel,
                                               const DeviceWatch& watch, const DeviceRules& rules);

/// Loads kernels, and allocates memory for the copies of so many ranks, while no operation waits:
/// both take long and may wait for all streams of a context. Does nothing if the calling thread has
/// no current context.
void prepare_device(int ranks);

} // namespace whorl
