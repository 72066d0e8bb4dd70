#include "api/group_device.h"

#include <algorithm>
#include <string>
#include <vector>

#include "device/common/group.h"

namespace whorl {
namespace {

/// The communicators of `batches` whose ranks meet for operations on a device.
std::vector<Batch*> with_device_groups(std::span<Batch> batches) {
  std::vector<Batch*> with;
  for (Batch& batch : batches) {
    if (batch.handle->communicator->device_group() != nullptr) with.push_back(&batch);
  }
  return with;
}

/// Waits until other processes have made the calls that share a device with those of `batches`.
void wait_for_calls(std::span<Batch* const> batches, Napper& napper) {
  std::vector<Batch*> waiting(batches.begin(), batches.end());
  WaitPolicy policy{.timeout_ns = 0};
  for (const Batch* const batch : waiting) { // the most patient one decides
    const std::uint64_t patience = policy.timeout_ns;
    policy = batch->handle->communicator->policy();
    policy.timeout_ns = std::max(policy.timeout_ns, patience);
  }
  const Verdict nobody;
  const auto attempt = [&] {
    bool moved = false;
    std::erase_if(waiting, [&](const Batch* batch) {
      const Communicator& communicator = *batch->handle->communicator;
      const Progress progress =
          communicator.device_group()->advance(communicator.policy().timeout_ns);
      moved |= progress == Progress::kAdvanced;
      return progress == Progress::kDone ||
             (progress == Progress::kIdle && communicator.verdict().raised());
    });
    if (waiting.empty()) return Progress::kDone;
    return moved ? Progress::kAdvanced : Progress::kIdle;
  };
  static_cast<void>(wait_until(attempt, policy, nobody, napper));
}

struct Posted {
  Batch* batch;
  std::size_t request;
  std::uint64_t number;
};

std::vector<Posted> post_all(std::span<Batch* const> batches) {
  std::vector<Posted> all;
  for (Batch* const batch : batches) {
    const Communicator& communicator = *batch->handle->communicator;
    DeviceGroup* const group = communicator.device_group();
    for (std::size_t i = 0; i < batch->requests.size(); ++i) {
      const Request& request = batch->requests[i];
      if (request.point_to_point()) continue;
      all.push_back({batch, i,
                     group->post(communicator.rank(), request, batch->stream_of[i].get(),
                                 communicator.policy().timeout_ns)});
    }
  }
  return all;
}

} // namespace

Status check_meetings(std::span<Batch> batches) {
  for (const Batch* const batch : with_device_groups(batches)) {
    const Communicator& communicator = *batch->handle->communicator;
    for (std::size_t i = 0; i < batch->requests.size(); ++i) {
      if (batch->requests[i].point_to_point()) continue;
      WHORL_TRY(communicator.device_group()->check(communicator.rank(), batch->requests[i],
                                                   batch->stream_of[i].get()));
    }
  }
  return {};
}

void meet_on_device(std::span<Batch> batches, Status& first) {
  const std::vector<Batch*> meeting = with_device_groups(batches);
  if (meeting.empty()) return;
  const std::vector<Posted> all = post_all(meeting);
  BatchNapper napper(meeting, BatchNapper::Engines::kOthers);
  wait_for_calls(meeting, napper);
  // From the last one on, so that the places of the others stay.
  for (auto posted = all.rbegin(); posted != all.rend(); ++posted) {
    Batch& batch = *posted->batch;
    Communicator& communicator = *batch.handle->communicator;
    const auto done = communicator.device_group()->meet(
        communicator.rank(), posted->number, communicator.policy(), communicator.verdict(), napper);
    if (!done.ok()) {
      communicator.abort(done.status());
      keep(*batch.handle, done.status(), first);
    } else if (*done == Met::kRefused) {
      keep(*batch.handle, communicator.device_group()->refusal(), first);
    }
    if (!done.ok() || *done != Met::kHost) batch.drop(posted->request);
  }
}

} // namespace whorl
