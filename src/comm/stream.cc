#include "comm/stream.h"

#include <algorithm>
#include <unordered_map>

#include "comm/task_queue.h"

namespace whorl {
namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_map<void*, std::shared_ptr<Stream>> streams;
};

Registry& registry() {
  static Registry* const instance = new Registry; // never destroyed: streams may outlive main()
  return *instance;
}

} // namespace

void Stream::release(std::uint64_t number) noexcept {
  completed_.store(number, std::memory_order_release); // pairs with may_start() and idle()
}

void Stream::complete(std::uint64_t number, const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (error_.ok()) error_ = status;
    settled_ = number;
    while (abandoned_.erase(settled_ + 1) > 0) ++settled_;
    release(settled_);
  }
  event_.notify();
}

void Stream::abandon(std::uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    if (settled_ + 1 < number) {
      abandoned_.insert(number);
      return;
    }
    settled_ = number;
    release(settled_);
  }
  event_.notify();
}

Status Stream::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Stream::enter(const std::shared_ptr<TaskQueue>& tasks) {
  const std::lock_guard lock(mutex_);
  if (std::find(entered_.begin(), entered_.end(), tasks) == entered_.end()) {
    entered_.push_back(tasks);
  }
}

Status Stream::synchronize() {
  // A queue that is entered while this waits is served by its progress thread alone.
  std::vector<std::shared_ptr<TaskQueue>> queues;
  {
    const std::lock_guard lock(mutex_);
    queues.swap(entered_);
  }
  Verdict nobody;
  Event::Waiter waiter(event_);
  // Operations end by themselves, with an error if need be: each has its own deadline.
  const WaitPolicy policy{
      .timeout_ns = UINT64_MAX, .spins = 0, .yield_ns = 50'000, .nap_ns = 1'000'000'000};
  static_cast<void>(wait_until(
      [&] {
        if (idle()) return Progress::kDone;
        const bool helped = std::any_of(queues.begin(), queues.end(),
                                        [this](const auto& queue) { return queue->help(this); });
        return helped ? Progress::kAdvanced : Progress::kIdle;
      },
      policy, nobody, waiter));
  return error();
}

void Ticket::complete_part(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (error_.ok()) error_ = status;
    if (--parts_ > 0) return;
  }
  stream_->complete(number_, error_);
}

void* create_stream() {
  auto stream = std::make_shared<Stream>();
  void* const handle = stream.get();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.streams.emplace(handle, std::move(stream));
  return handle;
}

std::shared_ptr<Stream> find_stream(void* handle) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.streams.find(handle);
  return found == all.streams.end() ? nullptr : found->second;
}

void destroy_stream(void* handle) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.streams.erase(handle);
}

} // namespace whorl
