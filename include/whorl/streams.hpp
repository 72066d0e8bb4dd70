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

/// Deleter of a handle of the C API; an error of `destroy` is lost.
template <auto destroy>
struct Destroy {
  template <class H>
  void operator()(H* handle) const noexcept {
    (void)destroy(handle);
  }
};

} // namespace detail

/// A mark of a place in a stream, which threads and streams wait for. Converts to the handle of the
/// C API.
class Event {
 public:
  Event() {
    whorlEvent_t event = nullptr;
    detail::check(whorlEventCreate(&event));
    event_.reset(event);
  }

  /// Makes the event stand for what is queued in `stream` now (whorlEventRecord()).
  void record(whorlStream_t stream) const { detail::check(whorlEventRecord(get(), stream)); }
  /// Returns whether what the event stands for is complete; throws its first error.
  [[nodiscard]] bool done() const { return detail::is_done(whorlEventQuery(get())); }
  /// Waits until what the event stands for is complete; throws its first error.
  void wait() const { detail::check(whorlEventWait(get(), -1)); }
  /// Waits for at most `timeout`, and returns whether what the event stands for is complete; throws
  /// its first error. Takes longer if the thread itself carries out an operation
  /// (whorlEventWait()).
  [[nodiscard]] bool wait_for(std::chrono::milliseconds timeout) const {
    const auto ms = timeout.count() > 0 ? static_cast<std::int64_t>(timeout.count()) : 0;
    return detail::is_done(whorlEventWait(get(), ms));
  }
  [[nodiscard]] whorlEvent_t get() const noexcept { return event_.get(); }
  // NOLINTNEXTLINE(google-explicit-constructor): an Event is passed where a handle is.
  operator whorlEvent_t() const noexcept { return get(); }

 private:
  std::unique_ptr<whorlEvent, detail::Destroy<whorlEventDestroy>> event_;
};

/// An in-order queue of asynchronous operations. Converts to the handle of the C API. The
/// destructor, and the assignment of another stream, wait for the stream's operations, whose errors
/// are lost, so synchronize() first. Neither is for a callback, where whorlStreamDestroy() is
/// refused: the stream would stay.
class Stream {
 public:
  Stream() {
    whorlStream_t stream = nullptr;
    detail::check(whorlStreamCreate(&stream));
    stream_.reset(stream);
  }

  /// Waits until everything issued is complete; throws the first error among it.
  void synchronize() const { detail::check(whorlStreamSynchronize(get())); }
  /// Whether everything issued is complete; throws the first error among it.
  [[nodiscard]] bool done() const { return detail::is_done(whorlStreamQuery(get())); }
  /// Makes what is queued from now on begin after `event` (whorlStreamWaitEvent()).
  void wait(const Event& event) const { detail::check(whorlStreamWaitEvent(get(), event.get())); }
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
    detail::check(whorlStreamAddCallback(get(), call, data.get()));
    (void)data.release(); // the callback's
  }
  [[nodiscard]] whorlStream_t get() const noexcept { return stream_.get(); }
  // NOLINTNEXTLINE(google-explicit-constructor): a Stream is passed where a handle is.
  operator whorlStream_t() const noexcept { return get(); }

 private:
  std::unique_ptr<whorlStream, detail::Destroy<whorlStreamDestroy>> stream_;
};

} // namespace api
} // namespace whorl
#endif // WHORL_STREAMS_HPP_
