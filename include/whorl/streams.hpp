/// @file streams.hpp
/// Streams of host memory, their events and callbacks, for C++. Included by whorl.hpp.
#ifndef WHORL_STREAMS_HPP_
#define WHORL_STREAMS_HPP_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "whorl/elements.hpp"
#include "whorl/whorl.h"

namespace whorl {
inline namespace api {
namespace detail {

/// Returns whether `result` is not whorlInProgress; throws if it is an error.
inline bool is_done(whorlResult_t result) {
  if (result != whorlInProgress) check(result);
  return result != whorlInProgress;
}

} // namespace detail

/// A mark of a place in a stream, which threads and streams wait for. Converts to the handle of the
/// C API.
class Event {
 public:
  Event() { detail::check(whorlEventCreate(&event_)); }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_ != nullptr) (void)whorlEventDestroy(event_);
  }

  /// Makes the event stand for what is queued in `stream` now (whorlEventRecord()).
  void record(whorlStream_t stream) const { detail::check(whorlEventRecord(event_, stream)); }
  /// Returns whether what the event stands for is complete; throws its first error.
  [[nodiscard]] bool done() const { return detail::is_done(whorlEventQuery(event_)); }
  /// Waits until what the event stands for is complete; throws its first error.
  void wait() const { detail::check(whorlEventWait(event_, -1)); }
  /// Waits for at most `timeout`, and returns whether what the event stands for is complete; throws
  /// its first error. Takes longer if the thread itself carries out an operation
  /// (whorlEventWait()).
  [[nodiscard]] bool wait_for(std::chrono::milliseconds timeout) const {
    const auto ms = timeout.count() > 0 ? static_cast<std::int64_t>(timeout.count()) : 0;
    return detail::is_done(whorlEventWait(event_, ms));
  }
  [[nodiscard]] whorlEvent_t get() const noexcept { return event_; }
  // NOLINTNEXTLINE(google-explicit-constructor): an Event is passed where a handle is.
  operator whorlEvent_t() const noexcept { return event_; }

 private:
  whorlEvent_t event_ = nullptr;
};

/// An in-order queue of asynchronous operations. Converts to the handle of the C API.
class Stream {
 public:
  Stream() { detail::check(whorlStreamCreate(&stream_)); }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  /// Waits for the stream's operations; their errors are lost, so synchronize() first. Not in a
  /// callback, where whorlStreamDestroy() is refused: the stream would stay.
  ~Stream() {
    if (stream_ != nullptr) (void)whorlStreamDestroy(stream_);
  }

  /// Waits until everything issued is complete; throws the first error among it.
  void synchronize() const { detail::check(whorlStreamSynchronize(stream_)); }
  /// Whether everything issued is complete; throws the first error among it.
  [[nodiscard]] bool done() const { return detail::is_done(whorlStreamQuery(stream_)); }
  /// Makes what is queued from now on begin after `event` (whorlStreamWaitEvent()).
  void wait(const Event& event) const { detail::check(whorlStreamWaitEvent(stream_, event.get())); }
  /// Queues a callback, with the rules of whorlStreamAddCallback(). The callback gets the first
  /// error of what was queued before it, as a whorlResult_t.
  void add_callback(std::function<void(whorlResult_t)> callback) const {
    using Function = std::function<void(whorlResult_t)>;
    if (stream_ == nullptr) { // the C function would call at once
      throw Error(whorlInvalidArgument, "add_callback: the Stream has been moved from");
    }
    auto data = std::make_unique<Function>(std::move(callback));
    constexpr auto call = [](void* function, whorlResult_t status) {
      const std::unique_ptr<Function> owned(static_cast<Function*>(function));
      (*owned)(status);
    };
    detail::check(whorlStreamAddCallback(stream_, call, data.get()));
    (void)data.release(); // the callback's
  }
  [[nodiscard]] whorlStream_t get() const noexcept { return stream_; }
  // NOLINTNEXTLINE(google-explicit-constructor): a Stream is passed where a handle is.
  operator whorlStream_t() const noexcept { return stream_; }

 private:
  whorlStream_t stream_ = nullptr;
};

} // namespace api
} // namespace whorl
#endif // WHORL_STREAMS_HPP_
