#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/comm_error.h"
#include "base/event.h"
#include "base/status.h"

namespace whorl {

class Engine;
class Stream;
struct Request;

/// Point in a stream: the end of operation `number` and of all operations before it.
struct StreamPoint {
  std::shared_ptr<Stream> stream; ///< null: before anything
  std::uint64_t number = 0;
};

/// A queue in which operations of streams wait to be carried out.
class StreamHelper {
 public:
  virtual ~StreamHelper() = default;
  /// Carries out the first operation of the queue if none has been begun, all streams of that
  /// operation have reached it, and the queue has an operation of `stream` (null: of any stream)
  /// numbered at most `number`, which may be the first one itself. Returns whether the first
  /// operation was carried out.
  virtual bool help(const Stream* stream, std::uint64_t number) = 0;
  /// Asks for what is queued to be carried out soon, by somebody who looks for its end without
  /// waiting and so does not help().
  virtual void hurry() noexcept = 0;
  /// Whether hurry() makes a difference. Always the same.
  virtual bool patient() const noexcept = 0;
};

/// An in-order queue of steps: operations, callbacks, and waits for events. Each step takes a
/// number when the step is issued and may start when all steps before it are complete. This class
/// is a stream of host memory; DeviceStream is one of a device, HostStream adds callbacks.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream() noexcept;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Returns a number that no other stream of this process has, nor will have; not 0.
  std::uint64_t id() const noexcept { return id_; }

  /// A request that is to be carried out in this stream.
  struct Part {
    Request* request;
    Engine* engine; ///< engine of its communicator
  };
  /// Prepares an operation that consists of `parts`: buffers that the host cannot reach are
  /// replaced. `alone` says that no other stream of the same device takes part in the call.
  /// Nothing is queued; an error means that it cannot be.
  virtual Status prepare(std::span<const Part> parts, bool alone) {
    static_cast<void>(parts);
    static_cast<void>(alone);
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
  /// Returns the handles of a device's stream, and nothing for a stream of the host.
  virtual std::optional<Device> device() const noexcept { return std::nullopt; }

  /// Returns whether all that was queued before operation `number` is complete.
  virtual bool may_start(std::uint64_t number) const noexcept {
    return completed_.load(std::memory_order_acquire) + 1 == number;
  }
  /// Returns an error if the stream will never come to what is queued there: its device is lost.
  virtual Status fault() const { return {}; }
  /// Returns how long a thread sleeps between checks of may_start(); completions wake the thread.
  virtual std::uint64_t block_ns() const noexcept { return 10'000'000; }
  /// Records that step `number` has finished, with `status`; the step counts as complete once all
  /// earlier steps have finished, too. Called in any order, once for each step.
  void complete(std::uint64_t number, const Status& status);
  /// Queues a step that is complete when `awaited` is, with the error of what was queued before
  /// that place. `self` is this stream, which is one of the host.
  Status wait_for(const std::shared_ptr<Stream>& self, const StreamPoint& awaited);
  /// Whether all operations are complete.
  bool idle() const noexcept {
    return completed_.load(std::memory_order_acquire) == issued_.load(std::memory_order_relaxed);
  }
  /// Whether operation `number` and all before it are complete.
  bool has_completed(std::uint64_t number) const noexcept {
    return completed_.load(std::memory_order_acquire) >= number;
  }
  /// Returns the number of the step that was issued last.
  std::uint64_t issued() const noexcept { return issued_.load(std::memory_order_relaxed); }
  /// Returns the first error of an operation of this stream, up to operation `last`.
  Status error(std::uint64_t last = UINT64_MAX) const;
  /// Notes that an operation of this stream is about to be queued in `queue`.
  void enter(const std::shared_ptr<StreamHelper>& queue);
  /// Waits until operation `number` and all before it are complete, and carries out itself what
  /// nobody has begun. Returns their error(), or kInProgress after `timeout_ns`, which is looked at
  /// between operations.
  Status synchronize(std::uint64_t number, std::uint64_t timeout_ns = UINT64_MAX);
  /// Waits until all that has been issued is complete, as above.
  Status synchronize() { return synchronize(issued()); }
  /// Asks for what has been issued to be carried out soon, see StreamHelper.
  void hurry();
  /// Returns the event that is notified at each completion.
  Event& event() noexcept { return event_; }

 protected:
  /// Lets what was queued behind operation `number` go on: that operation and all before it are
  /// complete. Called in the order of numbers, by one thread at a time.
  virtual void release(std::uint64_t number) noexcept;

 private:
  /// Dependency between a step of this stream and a step of another stream.
  struct Step {
    StreamPoint other; ///< the point that is awaited, or the step that waits for this stream
    Status status;     ///< status; set when the step is complete
  };
  /// Steps by number. Nodes go from one of the maps below to another, so that completing a step
  /// that waits needs no memory.
  using Steps = std::multimap<std::uint64_t, Step>;

  void settle(std::uint64_t number, const Status& status, Steps& reached);
  Status error_until(std::uint64_t last) const;
  std::vector<std::shared_ptr<StreamHelper>> entered() const;
  template <class Visit>
  bool visit_before(std::uint64_t number, std::vector<std::shared_ptr<StreamHelper>> queues,
                    Visit&& visit);

  const std::uint64_t id_;
  std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> completed_{0}; // the store in release() pairs with acquire above
  Event event_;
  mutable std::mutex mutex_;
  Status error_;
  std::uint64_t error_number_ = 0;           ///< operation that `error_` is of; 0: there is none
  std::uint64_t settled_ = 0;                ///< the last operation that was released
  Steps early_;                              ///< later steps of this stream that are complete
  Steps awaited_;                            ///< steps of this stream that wait for another one
  std::atomic<bool> awaits_{false};          ///< whether awaited_ has any
  std::atomic<bool> entered_patient_{false}; ///< whether a queue so far was patient
  Steps waiting_; ///< steps of other streams, by the operation of this one that they wait for
  /// Queues, distinct; emptied when idle, and of those that nobody else holds by enter().
  std::vector<std::shared_ptr<StreamHelper>> entered_;
};

/// Returns the mutex that is held while a step that waits for several streams takes its numbers:
/// steps that took them in different orders would wait for each other.
std::mutex& issuing();

/// Place of a group of operations in a stream. The parts (one for each communicator of the group)
/// start together and complete together. Parts that are not complete when the ticket goes will not
/// be carried out: then the operation is complete without them.
class Ticket {
 public:
  /// Makes a ticket for an operation that issue() puts into the stream.
  Ticket(std::shared_ptr<Stream> stream, int parts) : stream_(std::move(stream)), parts_(parts) {}
  ~Ticket();
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  /// Issues the operation, see Stream::issue().
  Status issue(std::span<const Stream::Part> parts);
  bool may_start() const noexcept { return stream_->may_start(number_); }
  /// Waits until may_start(), or returns an error if that will never be. In a stream of the host
  /// `comm_error`, for which `look` looks about once a millisecond, ends the wait, too: the
  /// operation touches nothing, so it completes before its turn.
  Status wait(const CommError& comm_error, const std::function<void()>& look);
  /// Queues what comes behind the operation, see Stream::follow().
  Status follow() { return stream_->follow(number_); }
  void complete_part(const Status& status);
  Stream& stream() noexcept { return *stream_; }
  std::uint64_t number() const noexcept { return number_; }

 private:
  std::shared_ptr<Stream> stream_;
  std::uint64_t number_ = 0; ///< number in the stream; 0: not issued
  std::mutex mutex_;
  int parts_;
  Status error_;
};

} // namespace whorl
