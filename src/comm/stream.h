#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/event.h"
#include "base/status.h"

namespace whorl {

class TaskQueue;

/// An in-order queue of operations on host memory. Each operation takes a ticket when it is issued
/// and may start when the ticket before it is complete.
class Stream {
 public:
  /// The number of a new operation, from 1.
  std::uint64_t issue() noexcept { return issued_.fetch_add(1, std::memory_order_relaxed) + 1; }
  bool may_start(std::uint64_t number) const noexcept {
    return completed_.load(std::memory_order_acquire) + 1 == number;
  }
  /// Marks an operation complete. In the order of numbers, because each waits for may_start().
  void complete(std::uint64_t number, const Status& status);
  bool idle() const noexcept {
    return completed_.load(std::memory_order_acquire) == issued_.load(std::memory_order_relaxed);
  }
  /// The first error of an operation of this stream.
  Status error() const;
  /// An operation of this stream is about to be queued there.
  void enter(const std::shared_ptr<TaskQueue>& tasks);
  /// Waits until the stream is idle, and carries out itself what nobody has begun; returns error().
  Status synchronize();
  Event& event() noexcept { return event_; } ///< notified at each completion

 private:
  std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> completed_{0}; // release in complete() pairs with acquire above
  Event event_;
  mutable std::mutex mutex_;
  Status error_;
  std::vector<std::shared_ptr<TaskQueue>> entered_; ///< distinct; emptied by synchronize()
};

/// Place of a group of operations in a stream. The parts (one for each communicator of the group)
/// start together and complete together.
class Ticket {
 public:
  Ticket(std::shared_ptr<Stream> stream, int parts)
      : stream_(std::move(stream)), number_(stream_->issue()), parts_(parts) {}
  bool may_start() const noexcept { return stream_->may_start(number_); }
  void complete_part(const Status& status);
  Stream& stream() noexcept { return *stream_; }

 private:
  std::shared_ptr<Stream> stream_;
  std::uint64_t number_;
  std::mutex mutex_;
  int parts_;
  Status error_;
};

/// The streams that exist. Handles are pointers that users pass around, so they are looked up,
/// never trusted. Any thread.
void* create_stream();
/// nullptr if `handle` is not a stream (any more).
std::shared_ptr<Stream> find_stream(void* handle);
void destroy_stream(void* handle);

} // namespace whorl
