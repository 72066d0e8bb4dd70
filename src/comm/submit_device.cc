#include "comm/submit_device.h"

#include <cstddef>
#include <cstdint>

#include "comm/together.h"

namespace whorl {
namespace {

/// A request that has been posted where its ranks meet.
struct Posted {
  std::size_t batch, request;
  std::uint64_t number; ///< number of the operation
};

std::vector<Posted> post_all(std::span<Batch> batches) {
  std::vector<Posted> all;
  for (std::size_t b = 0; b < batches.size(); ++b) {
    const Batch& batch = batches[b];
    const Communicator& communicator = *batch.communicator;
    for (std::size_t i = 0; i < batch.requests.size(); ++i) {
      if (!ranks_meet(communicator, batch.requests[i])) continue;
      const std::uint64_t number = communicator.device_group()->post(
          communicator.rank(), batch.requests[i], batch.stream_of[i].get(),
          communicator.policy().timeout_ns);
      all.push_back({b, i, number});
    }
  }
  return all;
}

/// Advances the operations of a batch for which other processes wait, until these have made the
/// same calls.
Progress advance_meeting(const Batch& batch) {
  const Communicator& communicator = *batch.communicator;
  const Progress progress = communicator.device_group()->advance(communicator.policy().timeout_ns);
  const bool ended = progress == Progress::kIdle && communicator.comm_error().is_set();
  return ended ? Progress::kDone : progress;
}

} // namespace

Status check_on_device(std::span<Batch> batches) {
  for (const Batch& batch : batches) {
    const Communicator& communicator = *batch.communicator;
    for (std::size_t i = 0; i < batch.requests.size(); ++i) {
      if (!ranks_meet(communicator, batch.requests[i])) continue;
      WHORL_TRY(communicator.device_group()->check(communicator.rank(), batch.requests[i],
                                                   batch.stream_of[i].get()));
    }
  }
  return {};
}

std::vector<Meetings> meet_on_device(std::span<Batch> batches, Status& first) {
  std::vector<Meetings> met(batches.size());
  std::vector<Batch*> meeting;
  for (std::size_t b = 0; b < batches.size(); ++b) {
    met[b].assign(batches[b].requests.size(), Met::kHost);
    if (batches[b].communicator->device_group() != nullptr) meeting.push_back(&batches[b]);
  }
  if (meeting.empty()) return met;
  const std::vector<Posted> all = post_all(batches);
  Together wait(meeting, Together::Engines::kOtherThreads);
  static_cast<void>(wait.drive(advance_meeting)); // errors of late ranks come from meet()
  // The request that was posted last waits longest; then the others need not wait any more.
  for (auto posted = all.rbegin(); posted != all.rend(); ++posted) {
    Batch& batch = batches[posted->batch];
    Communicator& communicator = *batch.communicator;
    DeviceGroup& group = *communicator.device_group();
    const auto outcome = group.meet(communicator.rank(), posted->number, communicator.policy(),
                                    communicator.comm_error(), wait);
    met[posted->batch][posted->request] = outcome.ok() ? *outcome : Met::kRefused;
    if (!outcome.ok()) {
      communicator.abort(outcome.status());
      record_error(batch, outcome.status(), first);
    } else if (*outcome == Met::kRefused) {
      record_error(batch, group.refusal(), first);
    }
  }
  return met;
}

} // namespace whorl
