#pragma once

// A CUDA driver of a pretended device, for tests without a device: libcuda.so.1 with the functions
// that whorl calls. The driver is strict, not fast:
//   - the host cannot access device memory: its addresses have no access rights, and the driver
//     reaches the same bytes through an alias; a stream that waits for or writes a word of memory
//     which the driver does not know, or does not know any more, causes a fault;
//   - a stream is a thread, so that asynchronous calls are asynchronous; the default stream and the
//     streams that synchronise with it wait for each other;
//   - with FAKE_CUDA_CONNECTIONS = n, streams of equal priority on a device share n hardware
//   queues:
//     an operation begins after all earlier ones of its queue have begun, and after earlier waits
//     have ended; otherwise each stream has a queue of its own;
//   - calls that may wait for all streams of a context do wait (fault.h), and hold up the calls of
//     other threads meanwhile (lock.h); so do copies to and from pageable memory;
//   - cuMemcpy() of at most 64 KiB from pageable memory returns before the device has the bytes,
//     for which streams that do not synchronise with the default stream do not wait;
//   - a stream has room for kMaxQueued operations; a call that queues another one waits and holds
//     others up, too, which is more than the real driver does;
//   - kernels are those of tests/support/host_kernels.h, found by their names, or with
//     FAKE_CUDA_PTX the PTX of the images (ptx_kernels.h); each block of a
//     cooperative launch is a thread, and accesses memory of another device only if the access has
//     been enabled;
//   - small allocations share blocks of 2 MiB; an IPC handle opens the whole block behind an
//     allocation, in other processes only, and only until all of the block is freed (memory.h,
//     ipc.cc); memory of a pool has no handle;
//   - physical memory is mapped to reserved addresses in whole units, and not accessible before the
//     access has been set; freed handles and addresses are reused at once (mappings.cc).

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/support/fake_cuda/contexts.h"
#include "tests/support/fake_cuda/graphs.h"
#include "tests/support/fake_cuda/memory.h"

namespace fake_cuda {

/// Queue of operations that a thread carries out in order. Operations of a device's default stream
/// also follow all earlier operations of the blocking streams there, and vice versa.
class Stream {
 public:
  enum class Kind { kLegacy, kBlocking, kNonBlocking };
  static constexpr std::uint64_t kMaxQueued = 1024; ///< operations that a stream has room for
  explicit Stream(Kind kind, int priority = 0);     ///< makes a stream of the current context
  ~Stream();                                        ///< waits for all operations
  /// Queues an operation, once there is room for it; `waits` if it waits for anything but the
  /// operations before it.
  void push(std::function<void()> operation, bool waits = false);
  bool idle();
  void synchronize();
  unsigned long long number() const { return number_; } ///< returns an id that is never reused
  int device() const { return device_; }
  Kind kind() const { return kind_; }
  /// Returns whether the stream's context has not been reset since the stream was made.
  bool exists() const;
  /// Capture of which the stream is a part; nullptr: none. See join_capture().
  std::shared_ptr<Capture> capture;

  /// Progress of a stream, which outlives the stream.
  struct Count {
    std::atomic<std::uint64_t> pushed{0}, done{0};
  };
  struct Point {
    std::shared_ptr<const Count> count;
    std::uint64_t number;
    bool reached() const { return count->done >= number; }
    void wait() const; ///< returns early when the device is lost
  };
  Point end() const { return {count_, count_->pushed}; }

 private:
  void run();
  std::vector<Point> others() const;
  /// Queue of the hardware, whose operations begin in the order in which they were queued.
  struct HardwareQueue {
    std::uint64_t queued = 0; ///< guarded by the mutex of all streams
    std::atomic<std::uint64_t> begun{0};
  };
  HardwareQueue* shared_queue(int priority) const;
  const Kind kind_;
  const int device_;
  const unsigned long long life_, number_;
  HardwareQueue* const queue_; ///< nullptr: a queue of its own
  const std::shared_ptr<Count> count_ = std::make_shared<Count>();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> operations_;
  bool stop_ = false;
  std::thread thread_;
};

/// Waits for all streams of the current context.
void synchronize_all();

/// Point in streams of the context that was current when the event was made.
class Event {
 public:
  int device() const { return device_; }
  /// Returns whether the event's context has not been reset since the event was made.
  bool exists() const { return id_of(context_of(device_)) == life_; }
  std::uint64_t record();           ///< returns the number of the new recording
  std::uint64_t recorded();         ///< returns the number of the last recording
  void reach(std::uint64_t number); ///< sets the number; called by the stream
  bool reached(std::uint64_t number);
  void wait(std::uint64_t number);
  std::chrono::steady_clock::time_point when(); ///< returns the time when it was last reached
  std::shared_ptr<Capture> capture;             ///< capture of the last recording; nullptr: none
  std::size_t node = 0;                         ///< node of that capture's graph to follow

 private:
  const int device_ = current_device();
  const unsigned long long life_ = id_of(context_of(device_));
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t recorded_ = 0;
  std::set<std::uint64_t> under_way_; ///< numbers of recordings, which streams reach in any order
  std::chrono::steady_clock::time_point when_;
};

/// Makes an event. The event is kept until destroy_event(), also by a reset of its context.
CUevent make_event();
void destroy_event(CUevent handle);
/// Returns the event of a handle. Queued operations keep the event alive, as in the real driver.
const std::shared_ptr<Event>& event_of(CUevent handle);

/// Function that makes the work of a launch of `blocks` from its parameters, for kernels whose
/// parameters differ from those of the library's kernels (host_kernels.h).
using LaunchOf = std::function<void()> (*)(void** parameters, unsigned blocks);
/// Returns the kernel of perf/gpu with this name; nullptr if there is none.
LaunchOf find_perf_kernel(std::string_view name);

/// Forgets all memory of other processes that this process has mapped.
void forget_imports();

/// Returns the stream of a handle. Default streams belong to the current context, per-thread ones
/// also to the calling thread.
Stream& stream_of(CUstream handle);

} // namespace fake_cuda
