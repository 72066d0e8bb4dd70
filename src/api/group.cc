#include "api/group.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <thread>
#include <utility>

#include "api/check.h"
#include "base/lasting.h"
#include "base/thread.h"
#include "comm/batch.h"
#include "comm/submit.h"

namespace whorl {
namespace {

Status ended() {
  return Status::error(Code::kInvalidUsage,
                       "another thread ended a communicator between whorlGroupStart and "
                       "whorlGroupEnd while the group had calls on it");
}

/// A communicator that a group has calls on; the group is inside the communicator as long as this
/// exists.
struct Used {
  explicit Used(whorlComm* used) : handle(used), inside(used) {}
  bool alive() const { return inside && handle->magic.load() == whorlComm::kAlive; }

  whorlComm* const handle;
  const Inside inside;
};

/// Sorts calls into batches, in the order in which the communicators are first used.
Status sort_by_communicator(std::span<const Call> calls, std::deque<Used>& used,
                            std::vector<Batch>& batches) {
  for (const Call& call : calls) {
    const auto known = std::find_if(used.begin(), used.end(),
                                    [&](const Used& one) { return one.handle == call.handle; });
    const auto index = static_cast<std::size_t>(known - used.begin());
    if (known == used.end()) {
      if (!used.emplace_back(call.handle).alive()) return ended();
      batches.push_back({.communicator = call.handle->communicator.get()});
    }
    batches[index].add(call.request, call.stream);
  }
  return {};
}

Status issue_all(std::span<const Call> calls) {
  std::deque<Used> used;
  std::vector<Batch> batches; // one for each of `used`
  WHORL_TRY(sort_by_communicator(calls, used, batches));
  for (const Batch& batch : batches) {
    WHORL_TRY(check_transfers(batch.requests, *batch.communicator));
  }
  Status status = submit(batches);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (!batches[i].error.ok()) used[i].handle->set_error(batches[i].error);
  }
  return status;
}

/// Whether all calls are on one communicator, and in one stream or in none.
bool are_together(std::span<const Call> calls) {
  return std::all_of(calls.begin(), calls.end(), [&](const Call& call) {
    return call.handle == calls[0].handle && call.stream == calls[0].stream;
  });
}

/// Does what issue_all() does, without its lists, for requests with one communicator and stream.
Status issue_together(whorlComm& handle, std::span<const Request> requests,
                      const std::shared_ptr<Stream>& stream) {
  Communicator& communicator = *handle.communicator;
  WHORL_TRY(check_transfers(requests, communicator));
  Status error;
  Status status = submit(communicator, requests, stream, error);
  if (!error.ok()) handle.set_error(error);
  return status;
}

} // namespace

constinit thread_local int Group::depth_ = 0;

Group& Group::current() noexcept { return lasting_of_thread<Group, struct OfThread>(); }

void Group::add(Call call) { calls_.push_back(std::move(call)); }
void Group::add_job(const whorlComm* parent, std::function<Status(const Status& refused)> job) {
  jobs_.push_back({parent, std::move(job)});
}
void Group::forget(const whorlComm& handle) {
  const std::size_t erased =
      std::erase_if(calls_, [&](const Call& call) { return call.handle == &handle; }) +
      std::erase_if(jobs_, [&](const Job& job) { return job.parent == &handle; });
  if (erased > 0) {
    fail_group(
        Status::error(Code::kInvalidUsage,
                      "a communicator was freed between whorlGroupStart and whorlGroupEnd while "
                      "the group had calls on it"));
  }
}
void Group::fail_group(const Status& error) {
  if (error_.ok()) error_ = error;
}

Group::Contents Group::take() {
  Contents taken{std::exchange(calls_, {}), std::exchange(jobs_, {}), std::exchange(error_, {})};
  if (std::exchange(out_of_memory_, false) && taken.error.ok()) {
    taken.error = Status::error(Code::kSystemError, "a call in the group found no memory");
  }
  return taken;
}

Status Group::drop() {
  if (!open()) {
    return Status::error(Code::kInvalidUsage,
                         "whorlGroupSimulateEnd without a matching whorlGroupStart in this thread");
  }
  --depth_;
  return open() ? Status() : take().error;
}

Status Group::end() {
  if (!open()) {
    return Status::error(Code::kInvalidUsage,
                         "whorlGroupEnd without a matching whorlGroupStart in this thread");
  }
  --depth_;
  if (open()) return {};
  Contents group = take();
  Status pending, error;
  if (!group.error.ok()) {
    static_cast<void>(without_exceptions([&] {
      if (!in_callback()) run_jobs(std::move(group.jobs), group.error, pending, error);
      return Status();
    }));
    return group.error;
  }
  std::vector<Call>& calls = group.calls;
  const bool waits =
      !group.jobs.empty() || std::any_of(calls.begin(), calls.end(),
                                         [](const Call& call) { return call.stream == nullptr; });
  if (waits) WHORL_TRY(check_may_wait("whorlGroupEnd"));

  if (!group.jobs.empty()) run_jobs(std::move(group.jobs), {}, pending, error);
  WHORL_TRY(error);
  WHORL_TRY(issue(calls));
  constexpr std::size_t kMostKept = 1024;
  if (calls_.empty() && calls.capacity() <= kMostKept) {
    calls.clear();
    calls_ = std::move(calls); // its memory serves the next group
  }
  return pending; // kInProgress if a creation goes on in the background
}

/// Runs the jobs of each parent one after the other; jobs of different parents, and jobs without a
/// parent, at the same time.
void Group::run_jobs(std::vector<Job> jobs, const Status& refused, Status& pending, Status& error) {
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
  const auto run = [&](std::size_t i, const Status& why_not) noexcept {
    for (const Job& job : queues[i]) {
      Status outcome = without_exceptions([&] { return job.run(why_not); });
      if (outcomes[i].ok() || outcomes[i].code() == Code::kInProgress) {
        outcomes[i] = std::move(outcome);
      }
    }
  };
  Threads threads(queues.size());
  for (std::size_t i = 1; i < queues.size(); ++i) {
    const Status started = threads.start("whorl-create", [&, i] { run(i, refused); });
    if (!started.ok()) run(i, refused.ok() ? started : refused); // tells the others
  }
  if (!queues.empty()) run(0, refused);
  threads.join();
  for (const Status& outcome : outcomes) {
    if (outcome.code() == Code::kInProgress) {
      pending = outcome;
    } else if (error.ok()) {
      error = outcome;
    }
  }
}

Status check_may_wait(const char* function) {
  if (!Group::in_callback()) return {};
  return Status::error(Code::kInvalidUsage,
                       fmt::format("{} may wait, and a callback of a stream must not: queue it in "
                                   "a stream, or do it on another thread",
                                   function));
}

Status issue(const Call& call) {
  return issue_together(*call.handle, {&call.request, 1}, call.stream);
}

Status issue(std::span<const Call> calls) {
  if (calls.empty()) return {};
  if (!are_together(calls)) return issue_all(calls);
  const Used used(calls[0].handle);
  if (!used.alive()) return ended();
  if (calls.size() == 1) return issue(calls[0]);
  std::vector<Request> requests;
  requests.reserve(calls.size());
  for (const Call& call : calls) requests.push_back(call.request);
  return issue_together(*calls[0].handle, requests, calls[0].stream);
}

} // namespace whorl
