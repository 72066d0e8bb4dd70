#include "engine/stream_event.h"

#include <utility>

#include "engine/handles.h"

namespace whorl {
namespace {

Handles<StreamEvent>& handles() {
  // Never destroyed: events may outlive main().
  static auto* const instance = new Handles<StreamEvent>("events");
  return *instance;
}

} // namespace

void StreamEvent::record(std::shared_ptr<Stream> stream) {
  const std::uint64_t number = stream != nullptr ? stream->issued() : 0;
  StreamPoint point{std::move(stream), number};
  const std::lock_guard lock(mutex_);
  std::swap(point_, point); // the old stream, perhaps its last mention, goes without the mutex
}

StreamPoint StreamEvent::point() const {
  const std::lock_guard lock(mutex_);
  return point_;
}

Status StreamEvent::wait(std::uint64_t timeout_ns) const {
  const StreamPoint at = point();
  return at.stream != nullptr ? at.stream->synchronize(at.number, timeout_ns) : Status();
}

Result<void*> create_event() { return handles().add(std::make_shared<StreamEvent>()); }
std::shared_ptr<StreamEvent> find_event(void* handle) { return handles().find(handle); }
bool destroy_event(void* handle) { return handles().remove(handle) != nullptr; }

} // namespace whorl
