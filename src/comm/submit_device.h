#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "comm/batch.h"
#include "device/common/group.h"

namespace whorl {

/// Whether the ranks of a communicator meet for a request, to carry it out on the device.
inline bool ranks_meet(const Communicator& communicator, const Request& request) noexcept {
  return communicator.device_group() != nullptr && !request.point_to_point();
}

/// Returns an error, and has no effect, if a request of `batches` cannot be made on the device
/// where its ranks meet.
Status check_on_device(std::span<Batch> batches);

/// Outcomes of the meetings of a batch's ranks, by request; kHost if the ranks do not meet.
using Meetings = std::vector<Met>;

/// Posts the requests of `batches` for which ranks meet, and waits until the other ranks have
/// posted theirs. Returns the outcomes by batch. An error ends its communicator, is left in the
/// batch and, if it is the first one, in `first`; its request counts as refused.
std::vector<Meetings> meet_on_device(std::span<Batch> batches, Status& first);

} // namespace whorl
