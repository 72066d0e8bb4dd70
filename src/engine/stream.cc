#include "engine/stream.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <unordered_map>

#include "base/system.h"

namespace whorl {
namespace {

/// Handles are addresses that nobody else has, one after the other.
struct Registry {
  static constexpr std::size_t kMostStreams = std::size_t{1} << 26;
  std::mutex mutex;
  std::unordered_map<void*, std::shared_ptr<Stream>> streams;
  std::byte* first = nullptr; ///< of kMostStreams addresses; null: none have been reserved
  std::size_t made = 0;
};

Registry& registry() {
  static Registry* const instance = new Registry; // never destroyed: streams may outlive main()
  return *instance;
}

} // namespace

void Stream::release(std::uint64_t number) noexcept {
  completed_.store(number, std::memory_order_release); // pairs with may_start() and idle()
}

void Stream::settle(std::uint64_t number) noexcept {
  settled_ = number;
  while (abandoned_.erase(settled_ + 1) > 0) ++settled_;
  release(settled_);
}

void Stream::complete(std::uint64_t number, const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (error_.ok()) error_ = status;
    settle(number);
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
    settle(number);
  }
  event_.notify();
}

Status Stream::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Stream::enter(const std::shared_ptr<StreamHelper>& queue) {
  const std::lock_guard lock(mutex_);
  if (std::find(entered_.begin(), entered_.end(), queue) == entered_.end()) {
    entered_.push_back(queue);
  }
}

Status Stream::synchronize() {
  // A queue that is entered while this waits is served by its progress thread alone.
  std::vector<std::shared_ptr<StreamHelper>> queues;
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

Result<void*> create_stream() {
  auto stream = std::make_shared<Stream>();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (all.first == nullptr) {
    void* addresses = nullptr;
    const int error = sys().mmap(nullptr, Registry::kMostStreams, PROT_NONE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, &addresses);
    if (error < 0) {
      return Status::error(Code::kSystemError,
                           fmt::format("mmap finds no {} addresses for the handles of streams: {}",
                                       Registry::kMostStreams, std::strerror(-error)));
    }
    all.first = static_cast<std::byte*>(addresses);
  }
  if (all.made == Registry::kMostStreams) {
    return Status::error(Code::kSystemError,
                         fmt::format("{} streams have been made, which is all there can be in one "
                                     "process; use streams again instead of making new ones",
                                     all.made));
  }
  void* const handle = all.first + all.made;
  all.streams.emplace(handle, std::move(stream));
  ++all.made;
  return handle;
}

bool was_stream(void* handle) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto address = reinterpret_cast<std::uintptr_t>(handle);
  const auto first = reinterpret_cast<std::uintptr_t>(all.first);
  return all.first != nullptr && address >= first && address - first < all.made;
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
