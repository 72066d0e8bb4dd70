#include "api/group.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include "api/batch.h"
#include "api/check.h"
#include "api/group_device.h"
#include "base/thread.h"
#include "engine/stream.h"

namespace whorl {
namespace {

/// The operation in one stream, for all communicators of a group that use it.
struct Queued {
  std::shared_ptr<Stream> stream;
  std::vector<Stream::Part> parts;
  int batches = 0; ///< communicators
  std::shared_ptr<Ticket> ticket;
};

/// Puts the operations of a group into their streams. All or, with an error, none of them.
Status queue(std::span<Queued> all) {
  // The places in several streams are taken at once: two groups in different orders would wait for
  // each other.
  static std::mutex issuing;
  const std::lock_guard lock(issuing);
  for (Queued& one : all) WHORL_TRY(one.stream->prepare(one.parts));
  const auto give_up = [&](Status status) {
    for (Queued& one : all) {
      if (one.ticket != nullptr) one.ticket->abandon();
    }
    return status;
  };
  for (Queued& one : all) {
    const auto number = one.stream->issue(one.parts);
    if (!number.ok()) return give_up(number.status());
    one.ticket = std::make_shared<Ticket>(one.stream, *number, one.batches);
  }
  for (Queued& one : all) {
    if (Status status = one.ticket->follow(); !status.ok()) return give_up(std::move(status));
  }
  return {};
}

/// Gives the batches that have streams to the progress threads. The error of a call that cannot be
/// queued is returned; those of communicators are kept.
Status submit(std::vector<Batch>& batches, Status& first) {
  std::vector<Queued> all;
  const auto find = [&](const std::shared_ptr<Stream>& stream) -> Queued& {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const Queued& one) { return one.stream == stream; });
    return found != all.end() ? *found : all.emplace_back(Queued{.stream = stream});
  };
  for (Batch& batch : batches) {
    const Communicator& communicator = *batch.handle->communicator;
    for (const auto& stream : batch.streams) ++find(stream).batches;
    for (std::size_t i = 0; i < batch.requests.size(); ++i) {
      if (batch.stream_of[i] == nullptr) continue;
      find(batch.stream_of[i]).parts.push_back({&batch.requests[i], &communicator.membership()});
    }
  }
  if (all.empty()) return {};
  WHORL_TRY(queue(all));
  for (Batch& batch : batches) {
    if (batch.streams.empty()) continue;
    std::vector<std::shared_ptr<Ticket>> own;
    for (const auto& stream : batch.streams) own.push_back(find(stream).ticket);
    keep(*batch.handle,
         batch.handle->communicator->submit({std::move(batch.requests), std::move(own)}), first);
  }
  return {};
}

/// Drives several communicators in this thread.
void run_together(std::span<Batch* const> batches, Status& first) {
  std::vector<Batch*> active;
  for (Batch* const batch : batches) {
    Communicator& communicator = *batch->handle->communicator;
    Status status = communicator.drain();
    if (status.ok()) status = communicator.begin(batch->requests);
    if (status.ok()) {
      active.push_back(batch);
    } else {
      keep(*batch->handle, status, first);
    }
  }
  if (active.empty()) return;
  const std::vector<Batch*> watched = active;
  BatchNapper napper(watched, BatchNapper::Engines::kOwn);
  const auto attempt = [&] {
    bool moved = false;
    for (std::size_t i = 0; i < active.size();) {
      Communicator& communicator = *active[i]->handle->communicator;
      const Progress progress =
          communicator.verdict().raised() ? Progress::kFailed : communicator.advance();
      if (progress == Progress::kDone || progress == Progress::kFailed) {
        keep(*active[i]->handle,
             communicator.finish(progress == Progress::kDone ? WaitResult::kReady
                                                             : WaitResult::kFailed),
             first);
        active.erase(active.begin() + static_cast<std::ptrdiff_t>(i));
        moved = true;
        continue;
      }
      moved |= progress == Progress::kAdvanced;
      ++i;
    }
    if (active.empty()) return Progress::kDone;
    return moved ? Progress::kAdvanced : Progress::kIdle;
  };
  WaitPolicy policy = active.front()->handle->communicator->policy();
  for (const Batch* const batch : active) { // the most patient one decides
    policy.timeout_ns =
        std::max(policy.timeout_ns, batch->handle->communicator->policy().timeout_ns);
  }
  const Verdict nobody;
  if (wait_until(attempt, policy, nobody, napper) == WaitResult::kTimedOut) {
    for (Batch* const batch : active) {
      keep(*batch->handle, batch->handle->communicator->finish(WaitResult::kTimedOut), first);
    }
  }
}

Status ended() {
  return Status::error(Code::kInvalidUsage,
                       "another thread ended a communicator between whorlGroupStart and "
                       "whorlGroupEnd while the group had calls on it");
}

/// What a group returns that could not be put into its streams. Ranks that have met for a
/// collective wait for each other to carry it out, so where this one cannot, its communicator ends.
Status give_up(std::span<Batch> batches, Status status) {
  for (Batch& batch : batches) {
    Communicator& communicator = *batch.handle->communicator;
    const bool met = communicator.device_group() != nullptr &&
                     std::any_of(batch.requests.begin(), batch.requests.end(),
                                 [](const Request& one) { return !one.point_to_point(); });
    if (met) communicator.abort(status);
    const Status told = communicator.end_if_device_is_lost(status);
    if (!told.ok()) batch.handle->set_error(told);
  }
  return status;
}

Status issue_all(std::span<const Call> calls) {
  Status first;
  std::vector<Batch> batches = sort_by_communicator(calls);
  std::deque<Inside> inside;
  for (Batch& batch : batches) {
    if (exists(batch.handle)) inside.emplace_back(*batch.handle);
    if (!exists(batch.handle) || batch.handle->magic.load() != whorlComm::kAlive) return ended();
  }
  for (const Batch& batch : batches) {
    WHORL_TRY(check_transfers(batch.requests, *batch.handle->communicator));
  }
  if (Status status = check_meetings(batches); !status.ok()) {
    for (Batch& batch : batches) {
      status = batch.handle->communicator->end_if_device_is_lost(std::move(status));
    }
    return status;
  }
  meet_on_device(batches, first);
  std::erase_if(batches, [](const Batch& batch) { return batch.requests.empty(); });
  if (Status status = submit(batches, first); !status.ok()) return give_up(batches, status);
  std::vector<Batch*> together;
  for (Batch& batch : batches) {
    if (batch.streams.empty()) together.push_back(&batch);
  }
  if (together.size() == 1) {
    keep(*together[0]->handle, together[0]->handle->communicator->run(together[0]->requests),
         first);
  } else {
    run_together(together, first);
  }
  for (Batch& batch : batches) {
    if (batch.blocking && !batch.streams.empty()) {
      keep(*batch.handle, batch.handle->communicator->drain(), first);
    }
  }
  return first;
}

/// What issue_all() does, without its lists.
Status issue_one(const Call& call) {
  if (!exists(call.handle)) return ended();
  whorlComm& handle = *call.handle;
  const Inside inside(handle);
  if (handle.magic.load() != whorlComm::kAlive) return ended();
  WHORL_TRY(check_transfers({&call.request, 1}, *handle.communicator));
  DeviceGroup* const group = handle.communicator->device_group();
  if (group != nullptr && !call.request.point_to_point()) {
    const bool on_host = call.stream == nullptr || !call.stream->device();
    if (!on_host || !group->counts()) return issue_all({&call, 1});
    group->count();
  }
  Status status;
  if (call.stream == nullptr) {
    status = handle.communicator->run({&call.request, 1});
  } else {
    Task task{.batch = {call.request}};
    const Communicator& communicator = *handle.communicator;
    Queued queued{.stream = call.stream,
                  .parts = {{task.batch.data(), &communicator.membership()}},
                  .batches = 1};
    if (Status failed = queue({&queued, 1}); !failed.ok()) {
      return handle.communicator->end_if_device_is_lost(std::move(failed));
    }
    task.tickets.push_back(std::move(queued.ticket));
    status = handle.communicator->submit(std::move(task));
  }
  if (!status.ok()) handle.set_error(status);
  return status;
}

} // namespace

constinit thread_local int Group::depth_ = 0;

Group& Group::current() noexcept {
  thread_local Group group;
  return group;
}

void Group::add(Call call) { calls_.push_back(std::move(call)); }
void Group::add_job(const whorlComm* parent, std::function<Status()> job) {
  jobs_.push_back({parent, std::move(job)});
}
void Group::forget(const whorlComm& handle) {
  const std::size_t erased =
      std::erase_if(calls_, [&](const Call& call) { return call.handle == &handle; }) +
      std::erase_if(jobs_, [&](const Job& job) { return job.parent == &handle; });
  if (erased > 0) {
    spoil(Status::error(Code::kInvalidUsage,
                        "a communicator was freed between whorlGroupStart and whorlGroupEnd while "
                        "the group had calls on it"));
  }
}
void Group::spoil(const Status& error) {
  if (error_.ok()) error_ = error;
}

Status Group::end() {
  if (depth_ == 0) {
    return Status::error(Code::kInvalidUsage,
                         "whorlGroupEnd without a matching whorlGroupStart in this thread");
  }
  if (--depth_ > 0) return {};
  const std::vector<Call> calls = std::exchange(calls_, {});
  std::vector<Job> jobs = std::exchange(jobs_, {});
  const bool out_of_memory = std::exchange(out_of_memory_, false);
  if (out_of_memory && error_.ok()) {
    return Status::error(Code::kSystemError, "a call in the group found no memory");
  }
  if (const Status error = std::exchange(error_, {}); !error.ok()) return error;

  Status pending, error;
  run_jobs(std::move(jobs), pending, error);
  WHORL_TRY(error);
  WHORL_TRY(issue(calls));
  return pending; // kInProgress if a creation goes on in the background
}

/// Runs the jobs of each parent one after the other, those of different parents and those without
/// one at the same time.
void Group::run_jobs(std::vector<Job> jobs, Status& pending, Status& error) {
  std::vector<std::vector<Job>> queues;
  for (Job& job : jobs) {
    const auto same = std::find_if(queues.begin(), queues.end(), [&](const auto& queue) {
      return job.parent != nullptr && queue.front().parent == job.parent;
    });
    if (same == queues.end()) {
      queues.emplace_back().push_back(std::move(job));
    } else {
      same->push_back(std::move(job));
    }
  }
  std::vector<Status> outcomes(queues.size());
  const auto run = [&](std::size_t i) noexcept {
    for (const Job& job : queues[i]) {
      const Status outcome = without_exceptions(job.run);
      if (outcomes[i].ok() || outcomes[i].code() == Code::kInProgress) outcomes[i] = outcome;
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(queues.size());
  for (std::size_t i = 1; i < queues.size(); ++i) {
    auto thread = start_thread("whorl-create", [&run, i] { run(i); });
    if (thread.ok()) {
      threads.push_back(*std::move(thread));
    } else {
      outcomes[i] = thread.status();
    }
  }
  if (!queues.empty()) run(0);
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) {
    if (outcome.code() == Code::kInProgress) {
      pending = outcome;
    } else if (error.ok()) {
      error = outcome;
    }
  }
}

Status issue(std::span<const Call> calls) {
  return calls.size() == 1 ? issue_one(calls[0]) : issue_all(calls);
}

} // namespace whorl
