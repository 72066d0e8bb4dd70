#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "engine/stream.h"
#include "engine/task_queue.h"

namespace whorl {

/// Stream of host memory, in which there may be callbacks. These are in a queue of their own, whose
/// thread starts with the first of them.
class HostStream final : public Stream, private TaskRunner {
 public:
  HostStream() = default;
  ~HostStream() override;

  /// Queues a callback, which gets the first error of what was queued before it; what is queued
  /// behind it begins when it has returned, with the error that it returns. `self` is this stream.
  static Status add_callback(const std::shared_ptr<HostStream>& self,
                             std::function<Status(const Status&)> callback);
  /// Ends the thread when the callbacks that are queued have returned; later ones are refused.
  void stop();

 private:
  Status run_task(const Task& task) override;
  Status start();

  std::mutex callbacks_mutex_; ///< guards numbers of callbacks, which the queue has in order
  std::shared_ptr<TaskQueue> callbacks_; ///< null until there is a callback
  std::thread thread_;
  bool stopped_ = false;
};

/// Makes a stream and returns its handle. These functions may be called by any thread.
Result<void*> create_stream();
/// Returns the stream, or nullptr if `handle` is not that of a stream (any more).
std::shared_ptr<HostStream> find_stream(void* handle);
/// Whether create_stream() has given `handle`, also if that stream has been destroyed.
bool was_stream(void* handle);
/// Forgets the handle; the stream lives on as long as others hold it.
void destroy_stream(void* handle);

} // namespace whorl
