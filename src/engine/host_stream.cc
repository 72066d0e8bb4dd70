#include "engine/host_stream.h"

#include <pthread.h>

#include <utility>

#include "base/thread.h"
#include "engine/handles.h"

namespace whorl {
namespace {

Handles<HostStream>& handles() {
  // Never destroyed: streams may outlive main().
  static auto* const instance = new Handles<HostStream>("streams");
  return *instance;
}

} // namespace

HostStream::~HostStream() {
  // The last task of the thread may hold the stream longest.
  if (thread_.joinable() && pthread_equal(thread_.native_handle(), pthread_self()) != 0) {
    thread_.detach();
  }
  stop();
}

/// Starts the thread of the callbacks. With the mutex held.
Status HostStream::start() {
  if (callbacks_ != nullptr) return {};
  auto queue = std::make_shared<TaskQueue>(static_cast<TaskRunner&>(*this));
  auto thread = start_thread("whorl-callback", [queue] {
    constexpr WaitPolicy kPolicy{
        .timeout_ns = UINT64_MAX, .yield_ns = 50'000, .block_ns = 1'000'000'000};
    while (queue->serve(kPolicy)) continue;
  });
  if (!thread.ok()) return thread.status();
  thread_ = *std::move(thread);
  callbacks_ = std::move(queue);
  return {};
}

Status HostStream::add_callback(const std::shared_ptr<HostStream>& self,
                                std::function<Status(const Status&)> callback) {
  const std::lock_guard lock(self->callbacks_mutex_);
  if (self->stopped_) {
    return Status::error(Code::kInvalidArgument, "the stream is being destroyed");
  }
  WHORL_TRY(self->start());
  Task task{
      .batch = {}, .callback = std::move(callback), .tickets = {std::make_shared<Ticket>(self, 1)}};
  self->enter(self->callbacks_);
  WHORL_TRY(task.tickets.front()->issue({}));
  self->callbacks_->push(std::move(task));
  return {};
}

void HostStream::stop() {
  std::thread thread;
  {
    const std::lock_guard lock(callbacks_mutex_);
    stopped_ = true;
    thread = std::move(thread_);
    if (callbacks_ != nullptr) callbacks_->stop();
  }
  if (thread.joinable()) thread.join();
}

Status HostStream::run_task(const Task& task) {
  Ticket& ticket = *task.tickets.front();
  if (!ticket.may_start()) hurry(); // other threads may wait for the callback
  const CommError never_set;        // a callback is called in any case
  WHORL_TRY(ticket.wait(never_set, [] {}));
  return without_exceptions([&] { return task.callback(error()); });
}

Result<void*> create_stream() { return handles().add(std::make_shared<HostStream>()); }
std::shared_ptr<HostStream> find_stream(void* handle) { return handles().find(handle); }
bool was_stream(void* handle) { return handles().was(handle); }
void destroy_stream(void* handle) { static_cast<void>(handles().remove(handle)); }

} // namespace whorl
