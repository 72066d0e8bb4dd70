#pragma once

#include <memory>
#include <mutex>

#include "base/status.h"
#include "engine/stream.h"

namespace whorl {

/// Mark of a place in a stream of the host, which threads and other streams wait for. Any thread.
class StreamEvent {
 public:
  /// Makes the event stand for all that is queued in `stream` now; null: for nothing.
  void record(std::shared_ptr<Stream> stream);
  /// Returns the place; without a stream if nothing has been recorded.
  StreamPoint point() const;
  /// Waits for the place as Stream::synchronize() does.
  Status wait(std::uint64_t timeout_ns) const;

 private:
  mutable std::mutex mutex_;
  StreamPoint point_;
};

/// Makes an event and returns its handle. These functions may be called by any thread.
Result<void*> create_event();
/// Returns the event, or nullptr if `handle` is not that of an event (any more).
std::shared_ptr<StreamEvent> find_event(void* handle);
/// Forgets the handle and returns whether there was such an event. Waits that have begun go on.
bool destroy_event(void* handle);

} // namespace whorl
