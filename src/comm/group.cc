#include "comm/group.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/thread.h"
#include "comm/stream.h"

namespace whorl {
namespace {

/// All calls of a group on one communicator.
struct Batch {
  whorlComm* handle = nullptr;
  std::vector<Request> requests;
  std::vector<void*> streams; ///< distinct, without null
  bool blocking = false;      ///< a call had no stream
};

std::vector<Batch> sort_by_communicator(std::span<const Call> calls) {
  std::vector<Batch> batches;
  for (const Call& call : calls) {
    auto batch = std::find_if(batches.begin(), batches.end(),
                              [&](const Batch& b) { return b.handle == call.handle; });
    if (batch == batches.end()) batch = batches.insert(batches.end(), Batch{.handle = call.handle});
    batch->requests.push_back(call.request);
    if (call.stream == nullptr) {
      batch->blocking = true;
    } else if (std::find(batch->streams.begin(), batch->streams.end(), call.stream) ==
               batch->streams.end()) {
      batch->streams.push_back(call.stream);
    }
  }
  return batches;
}

void keep(whorlComm& handle, const Status& status, Status& first) {
  if (status.ok()) return;
  handle.set_error(status);
  if (first.ok()) first = status;
}

/// Gives the batches that have streams to the progress threads.
void submit(std::vector<Batch>& batches, Status& first) {
  std::map<void*, int> parts;
  for (const Batch& batch : batches) {
    for (void* const stream : batch.streams) ++parts[stream];
  }
  std::map<void*, std::shared_ptr<Ticket>> tickets;
  for (const auto& [handle, count] : parts) {
    tickets[handle] = std::make_shared<Ticket>(find_stream(handle), count);
  }
  for (Batch& batch : batches) {
    if (batch.streams.empty()) continue;
    std::vector<std::shared_ptr<Ticket>> own;
    for (void* const stream : batch.streams) own.push_back(tickets[stream]);
    keep(*batch.handle,
         batch.handle->communicator->submit(std::move(batch.requests), std::move(own)), first);
  }
}

/// Watches all communicators that a thread drives at the same time.
class ManyNapper final : public Napper {
 public:
  explicit ManyNapper(std::span<Batch* const> batches) : batches_(batches) {}
  void nap(std::uint64_t max_ns) noexcept override { clock_.nap(max_ns); }
  void look_around(std::uint64_t waited_ns) noexcept override {
    for (Batch* const batch : batches_)
      batch->handle->communicator->napper().look_around(waited_ns);
  }

 private:
  std::span<Batch* const> batches_;
  ClockNapper clock_;
};

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
  ManyNapper napper(watched);
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
  const WaitPolicy policy = active.front()->handle->communicator->policy();
  const Verdict nobody;
  if (wait_until(attempt, policy, nobody, napper) == WaitResult::kTimedOut) {
    for (Batch* const batch : active) {
      keep(*batch->handle, batch->handle->communicator->finish(WaitResult::kTimedOut), first);
    }
  }
}

} // namespace

Group& Group::current() noexcept {
  thread_local Group group;
  return group;
}

void Group::add(Call call) { calls_.push_back(std::move(call)); }
void Group::add_job(std::function<Status()> job) { jobs_.push_back(std::move(job)); }
void Group::spoil(const Status& error) {
  if (error_.ok()) error_ = error;
}

Status Group::end() {
  if (depth_ == 0) {
    return Status::error(Code::kInvalidUsage,
                         "whorlGroupEnd without a matching whorlGroupStart in this thread");
  }
  if (--depth_ > 0) return {};
  const std::vector<Call> calls = std::move(calls_);
  const std::vector<std::function<Status()>> jobs = std::move(jobs_);
  const Status error = std::move(error_);
  calls_.clear();
  jobs_.clear();
  error_ = {};
  if (!error.ok()) return error;

  std::vector<Status> outcomes(jobs.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < jobs.size(); ++i) {
    auto thread = start_thread("whorl-create", [&, i] { outcomes[i] = jobs[i](); });
    if (thread.ok()) {
      threads.push_back(*std::move(thread));
    } else {
      outcomes[i] = thread.status();
    }
  }
  if (!jobs.empty()) outcomes[0] = jobs[0]();
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) WHORL_TRY(outcome);
  return issue(calls);
}

Status issue(std::span<const Call> calls) {
  if (calls.size() == 1 && calls[0].stream == nullptr) {
    whorlComm& handle = *calls[0].handle;
    Status status = handle.communicator->run({&calls[0].request, 1});
    if (!status.ok()) handle.set_error(status);
    return status;
  }
  Status first;
  std::vector<Batch> batches = sort_by_communicator(calls);
  submit(batches, first);
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

} // namespace whorl
