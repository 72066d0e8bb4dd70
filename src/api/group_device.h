#pragma once

#include <span>

#include "api/batch.h"
#include "base/status.h"

namespace whorl {

/// An error if a call of `batches` cannot be made on the device where its ranks meet; nothing has
/// happened then.
Status check_meetings(std::span<Batch> batches);

/// Posts the collectives of `batches` where their ranks meet for operations on a device, waits
/// until the other ranks have made theirs, and takes out of the batches what has been put into
/// streams there. The error of a communicator ends that communicator, is kept in its handle and, if
/// it is the first one, in `first`.
void meet_on_device(std::span<Batch> batches, Status& first);

} // namespace whorl
