#pragma once

#include <memory>
#include <span>

#include "base/status.h"
#include "comm/batch.h"
#include "comm/communicator.h"
#include "device/common/group.h"
#include "engine/request.h"
#include "engine/stream.h"

namespace whorl {

/// Chooses the path of a request; `met` is the outcome of the meeting of its ranks on the device,
/// kHost if they do not meet. `in_stream` says whether any request of the batch that the device
/// leaves to the host has a stream: such requests stay together, so that they keep their order.
constexpr Path choose_path(Met met, bool in_stream) noexcept {
  switch (met) {
    case Met::kQueued:
      return Path::kDevice;
    case Met::kRefused:
      return Path::kNone;
    case Met::kHost:
      break;
  }
  return in_stream ? Path::kStream : Path::kHost;
}

/// Carries out batches of different communicators together. Returns when requests without a stream
/// are complete and the others are in their streams. The result is the first error: of a batch,
/// which is also left in Batch::error, or of a request that cannot be made, so that nothing has
/// been carried out. The requests of the batches are used up.
Status submit(std::span<Batch> batches);

/// Carries out requests that have the same stream, or none, without the lists of batches where no
/// device takes part. `error` gets the value of Batch::error.
Status submit(Communicator& communicator, std::span<const Request> requests,
              const std::shared_ptr<Stream>& stream, Status& error);

} // namespace whorl
