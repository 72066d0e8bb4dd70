#include "comm/submit.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/submit_device.h"
#include "comm/together.h"

namespace whorl {
namespace {

/// Whether a request of a batch has the given path.
bool has(const Batch& batch, Path path) {
  return std::find(batch.paths.begin(), batch.paths.end(), path) != batch.paths.end();
}

/// Takes the requests with the given path out of a batch.
std::vector<Request> take(Batch& batch, Path path) {
  std::vector<Request> taken;
  for (std::size_t i = 0; i < batch.requests.size(); ++i) {
    if (batch.paths[i] == path) taken.push_back(std::move(batch.requests[i]));
  }
  return taken;
}

void choose_paths(Batch& batch, const Meetings& met) {
  bool in_stream = false;
  for (std::size_t i = 0; i < met.size(); ++i) {
    in_stream |= met[i] == Met::kHost && batch.stream_of[i] != nullptr;
  }
  batch.paths.clear();
  for (const Met one : met) batch.paths.push_back(choose_path(one, in_stream));
}

/// The operation in one stream, for all communicators of a group that use the stream.
struct Queued {
  std::shared_ptr<Stream> stream;
  std::vector<Stream::Part> parts;
  int batches = 0; ///< number of communicators
  std::shared_ptr<Ticket> ticket;
};

/// Returns whether no other stream of the group belongs to the same device.
bool is_alone(const Queued& one, std::span<const Queued> all) {
  const auto device = one.stream->device();
  return std::none_of(all.begin(), all.end(), [&](const Queued& other) {
    const auto its = other.stream->device();
    return &other != &one && device && its && its->context == device->context;
  });
}

/// Puts the operations of a group into their streams: all of them or, with an error, none.
Status queue(std::span<Queued> all) {
  const std::lock_guard lock(issuing());
  for (Queued& one : all) WHORL_TRY(one.stream->prepare(one.parts, is_alone(one, all)));
  // An error drops the tickets, and a dropped ticket gives up the place that it has taken.
  for (Queued& one : all) {
    one.ticket = std::make_shared<Ticket>(one.stream, one.batches);
    WHORL_TRY(one.ticket->issue(one.parts));
  }
  for (Queued& one : all) WHORL_TRY(one.ticket->follow());
  return {};
}

/// Puts requests into their streams and gives them to the task queues. Returns the error of a
/// request that cannot be queued.
Status queue_in_streams(std::span<Batch> batches) {
  std::vector<Queued> all;
  const auto find = [&](const std::shared_ptr<Stream>& stream) {
    return std::find_if(all.begin(), all.end(),
                        [&](const Queued& one) { return one.stream == stream; });
  };
  std::vector<std::vector<std::shared_ptr<Stream>>> streams(batches.size()); // distinct, of each
  for (std::size_t b = 0; b < batches.size(); ++b) {
    Batch& batch = batches[b];
    for (std::size_t i = 0; i < batch.requests.size(); ++i) {
      const std::shared_ptr<Stream>& stream = batch.stream_of[i];
      if (batch.paths[i] != Path::kStream || stream == nullptr) continue;
      auto queued = find(stream);
      if (queued == all.end()) queued = all.insert(all.end(), Queued{.stream = stream});
      queued->parts.push_back({&batch.requests[i], &batch.communicator->engine()});
      if (std::find(streams[b].begin(), streams[b].end(), stream) == streams[b].end()) {
        streams[b].push_back(stream);
        ++queued->batches;
      }
    }
  }
  if (all.empty()) return {};
  for (std::size_t b = 0; b < batches.size(); ++b) {
    if (!streams[b].empty()) WHORL_TRY(batches[b].communicator->start_progress());
  }
  WHORL_TRY(queue(all));
  for (std::size_t b = 0; b < batches.size(); ++b) {
    if (streams[b].empty()) continue;
    Task task{.batch = take(batches[b], Path::kStream)};
    for (const auto& stream : streams[b]) task.tickets.push_back(find(stream)->ticket);
    batches[b].communicator->enqueue(std::move(task));
  }
  return {};
}

/// Drives several communicators in this thread. `requests` are the requests by batch.
void run_together(std::span<Batch* const> batches, std::span<const std::vector<Request>> requests,
                  Status& first) {
  std::vector<Batch*> begun;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    Communicator& communicator = *batches[i]->communicator;
    Status status = communicator.drain();
    if (status.ok()) status = communicator.begin(requests[i]);
    if (status.ok()) begun.push_back(batches[i]);
    record_error(*batches[i], status, first);
  }
  if (begun.empty()) return;
  const auto finish = [&](Batch& batch, WaitResult result) {
    record_error(batch, batch.communicator->finish(result), first);
  };
  const auto step = [&](Batch& batch) {
    Communicator& communicator = *batch.communicator;
    const Progress progress =
        communicator.comm_error().is_set() ? Progress::kFailed : communicator.advance();
    if (progress == Progress::kDone) finish(batch, WaitResult::kReady);
    if (progress == Progress::kFailed) finish(batch, WaitResult::kFailed);
    return progress == Progress::kFailed ? Progress::kDone : progress;
  };
  Together together(begun, Together::Engines::kThisThread);
  for (Batch* const late : together.drive(step)) finish(*late, WaitResult::kTimedOut);
}

/// Carries out, in this thread, the requests that have neither a device nor a stream.
void run_here(std::span<Batch> batches, Status& first) {
  std::vector<Batch*> here;
  std::vector<std::vector<Request>> requests; // of each of these, as long as the engines use them
  for (Batch& batch : batches) {
    if (!has(batch, Path::kHost)) continue;
    here.push_back(&batch);
    requests.push_back(take(batch, Path::kHost));
  }
  if (here.size() == 1) { // that one can wait for its own peers alone
    record_error(*here[0], here[0]->communicator->run(requests[0]), first);
  } else {
    run_together(here, requests, first);
  }
}

/// Waits for the batches in streams that have requests which must be complete on return.
void wait_for_streams(std::span<Batch> batches, Status& first) {
  for (Batch& batch : batches) {
    const bool waits =
        has(batch, Path::kStream) &&
        std::find(batch.stream_of.begin(), batch.stream_of.end(), nullptr) != batch.stream_of.end();
    if (waits) record_error(batch, batch.communicator->drain(), first);
  }
}

/// Fails batches that could not be put into their streams. Ranks that have met for a collective
/// wait for each other to carry it out, so if this rank cannot, its communicator ends. All
/// communicators of the group end if the system refuses this rank what one of them needs, such as a
/// thread.
void fail_unqueued(std::span<Batch> batches, const Status& status) {
  for (Batch& batch : batches) {
    Communicator& communicator = *batch.communicator;
    bool left = false, met = false;
    for (std::size_t i = 0; i < batch.requests.size(); ++i) {
      const bool waiting = batch.paths[i] == Path::kStream || batch.paths[i] == Path::kHost;
      left |= waiting;
      met |= waiting && ranks_meet(communicator, batch.requests[i]);
    }
    if (!left) continue;
    if (met || status.code() == Code::kSystemError) {
      communicator.abort(
          status.with_context(communicator.membership().describe(communicator.rank())));
    }
    batch.error = communicator.end_if_device_is_lost(status);
  }
}

/// Puts requests of one communicator into one stream and gives them to the task queue.
Status queue_in_one(Communicator& communicator, std::span<const Request> requests,
                    const std::shared_ptr<Stream>& stream) {
  WHORL_TRY(communicator.start_progress());
  Task task{.batch = {requests.begin(), requests.end()}};
  Queued queued{.stream = stream, .batches = 1};
  for (Request& request : task.batch) {
    queued.parts.push_back({&request, &communicator.engine()});
  }
  if (Status refused = queue({&queued, 1}); !refused.ok()) {
    return communicator.end_if_device_is_lost(std::move(refused));
  }
  task.tickets.push_back(std::move(queued.ticket));
  communicator.enqueue(std::move(task));
  return {};
}

} // namespace

Status submit(std::span<Batch> batches) {
  if (Status status = check_on_device(batches); !status.ok()) {
    for (const Batch& batch : batches) {
      status = batch.communicator->end_if_device_is_lost(std::move(status));
    }
    return status;
  }
  Status first;
  const std::vector<Meetings> met = meet_on_device(batches, first);
  for (std::size_t b = 0; b < batches.size(); ++b) choose_paths(batches[b], met[b]);
  if (Status status = queue_in_streams(batches); !status.ok()) {
    fail_unqueued(batches, status);
    return status;
  }
  run_here(batches, first);
  wait_for_streams(batches, first);
  return first;
}

Status submit(Communicator& communicator, std::span<const Request> requests,
              const std::shared_ptr<Stream>& stream, Status& error) {
  DeviceGroup* const group = communicator.device_group();
  const bool alone = requests.size() == 1;
  if (group != nullptr && (!alone || ranks_meet(communicator, requests[0]))) {
    const bool on_device = stream != nullptr && stream->device();
    if (!alone || on_device || !group->counts()) {
      Batch batch{.communicator = &communicator};
      for (const Request& request : requests) batch.add(request, stream);
      Status status = submit({&batch, 1});
      error = batch.error;
      return status;
    }
    group->count(); // the ranks need not meet, because this one leaves the operation to the host
  }
  if (choose_path(Met::kHost, stream != nullptr) == Path::kStream) {
    return queue_in_one(communicator, requests, stream);
  }
  error = communicator.run(requests);
  return error;
}

} // namespace whorl
