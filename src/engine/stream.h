#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/event.h"
#include "base/status.h"

namespace whorl {

class Stream;
struct Membership;
struct Request;

/// A queue in which operations of streams wait to be carried out.
class StreamHelper {
 public:
  virtual ~StreamHelper() = default;
  /// Carries out the first operation if nobody has begun one, its streams are as far, and it stands
  /// before an operation of `stream` or is one (null: of any stream). Returns whether it has.
  virtual bool help(const Stream* stream) = 0;
};

/// An in-order queue of operations. Each takes a ticket when it is issued and may start when all
/// that was queued before it is complete. This one is of host memory; DeviceStream is the other.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// A request that is to be carried out in this stream.
  struct Part {
    Request* request;
    const Membership* members; ///< of its communicator
  };
  /// Prepares an operation that consists of `parts`: buffers that the host cannot reach are
  /// replaced. Nothing is queued; an error means that it cannot be.
  virtual Status prepare(std::span<const Part> parts) {
    static_cast<void>(parts);
    return {};
  }
  /// Queues what comes before the operation that was prepared last, and gives its number, from 1.
  /// Operations that are in several streams are queued in all of them before the next one is.
  virtual Result<std::uint64_t> issue(std::span<const Part> parts) {
    static_cast<void>(parts);
    return issued_.fetch_add(1, std::memory_order_relaxed) + 1;
  }

  /// Queues what comes behind operation `number`, the last that was issued. Where an operation is
  /// in several streams it has been issued in all of them, so that none of these waits for a stream
  /// that is in order with it. An error: nothing may have been queued.
  virtual Status follow(std::uint64_t number) {
    static_cast<void>(number);
    return {};
  }

  /// The stream and its context, as the device's driver knows them.
  struct Device {
    void* stream;
    void* context;
  };
  /// Nothing for a stream of the host.
  virtual std::optional<Device> device() const noexcept { return std::nullopt; }

  virtual bool may_start(std::uint64_t number) const noexcept {
    return completed_.load(std::memory_order_acquire) + 1 == number;
  }
  /// An error if the stream will never come to anything that is queued there: its device is lost.
  virtual Status fault() const { return {}; }
  /// How long to sleep between looking whether an operation may start; completions wake up.
  virtual std::uint64_t nap_ns() const noexcept { return 10'000'000; }
  /// Marks an operation complete. In the order of numbers, because each waits for may_start().
  void complete(std::uint64_t number, const Status& status);
  /// Gives up an operation that has been issued and that nobody will carry out: it is complete as
  /// soon as all before it are.
  void abandon(std::uint64_t number);
  /// Whether all operations are complete.
  bool idle() const noexcept {
    return completed_.load(std::memory_order_acquire) == issued_.load(std::memory_order_relaxed);
  }
  /// The first error of an operation of this stream.
  Status error() const;
  /// Notes that an operation of this stream is about to be queued in `queue`.
  void enter(const std::shared_ptr<StreamHelper>& queue);
  /// Waits until the stream is idle, and carries out itself what nobody has begun; returns error().
  Status synchronize();
  Event& event() noexcept { return event_; } ///< notified at each completion

 protected:
  /// Lets what was queued behind operation `number` go on: it and all before it are complete.
  /// Called in the order of numbers, by one thread at a time.
  virtual void release(std::uint64_t number) noexcept;

 private:
  /// Releases operation `number` and what has been given up behind it. With the mutex held.
  void settle(std::uint64_t number) noexcept;

  std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> completed_{0}; // release in complete() pairs with acquire above
  Event event_;
  mutable std::mutex mutex_;
  Status error_;
  std::uint64_t settled_ = 0;                          ///< the last operation that was released
  std::set<std::uint64_t> abandoned_;                  ///< later ones
  std::vector<std::shared_ptr<StreamHelper>> entered_; ///< distinct; emptied by synchronize()
};

/// Place of a group of operations in a stream. The parts (one for each communicator of the group)
/// start together and complete together.
class Ticket {
 public:
  /// `number` is what the stream's issue() gave.
  Ticket(std::shared_ptr<Stream> stream, std::uint64_t number, int parts)
      : stream_(std::move(stream)), number_(number), parts_(parts) {}
  bool may_start() const noexcept { return stream_->may_start(number_); }
  /// Stream::follow().
  Status follow() { return stream_->follow(number_); }
  void complete_part(const Status& status);
  /// Instead of complete_part(), for all parts: none will be carried out.
  void abandon() { stream_->abandon(number_); }
  Stream& stream() noexcept { return *stream_; }

 private:
  std::shared_ptr<Stream> stream_;
  std::uint64_t number_;
  std::mutex mutex_;
  int parts_;
  Status error_;
};

/// The streams that exist. Handles are pointers that users pass around, so they are looked up,
/// never trusted. None is used again, nor do they point to memory. Any thread.
Result<void*> create_stream();
/// nullptr if `handle` is not a stream (any more).
std::shared_ptr<Stream> find_stream(void* handle);
/// Whether create_stream() has given `handle`, also if that stream has been destroyed.
bool was_stream(void* handle);
void destroy_stream(void* handle);

} // namespace whorl
