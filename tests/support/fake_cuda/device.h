#pragma once

// A CUDA driver of a pretended device, for tests where there is none: libcuda.so.1 with the
// functions that whorl calls. What it pretends is strict, not fast:
//   - device memory cannot be touched by the host: its addresses have no access rights, and the
//     driver reaches the same bytes through an alias; a stream that waits for or writes a word of
//     memory which the driver does not know, or does not know any more, is a fault;
//   - a stream is a thread, so that everything asynchronous really is; the default stream and the
//     streams that synchronise with it wait for each other;
//   - with FAKE_CUDA_CONNECTIONS = n, streams of equal priority on a device share n queues of the
//     hardware: nothing begins there before all that was queued earlier has begun, and what waits
//     has waited; otherwise each stream has its own;
//   - what may wait for all streams of a context does (fault.h);
//   - kernels are those of tests/support/host_kernels.h, found by their names; of a cooperative
//     launch each block is a thread, and a block touches memory of another device only if access to
//     it has been enabled;
//   - an IPC handle opens the file behind an allocation, in other processes only, and not once the
//     allocation has been freed (ipc.cc); memory of a pool has none;
//   - physical memory is mapped to reserved addresses in whole units, and not accessible before
//   that
//     has been set; what is not needed any more gets its handle and its addresses reused at once
//     (mappings.cc).

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

namespace fake_cuda {

/// Memory that the driver knows, by the address that the program has.
class Memory {
 public:
  struct Range {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    std::byte* alias = nullptr; ///< the same bytes, for the driver
    unsigned type = 0;          ///< CUmemorytype
    bool managed = false;
    int device = 0;
    int fd = -1;                 ///< behind device memory
    unsigned long long id = 0;   ///< of an allocation of device memory, never used again
    bool shareable = false;      ///< by an IPC handle
    bool pool = false;           ///< belongs to no context
    bool registered = false;     ///< memory of the program
    std::uintptr_t reserved = 0; ///< of a mapping: where its reservation begins
    std::size_t reservation = 0; ///< … and its bytes; 0: no mapping
  };

  static Memory& all();
  /// `pool`: as cuMemAllocAsync() does.
  CUresult allocate_device(std::size_t bytes, bool pool, int device, CUdeviceptr* address);
  /// Maps what `range` of another process says. Not if it has been freed.
  CUresult open_device(int process, const Range& range, CUdeviceptr* address);
  CUresult free_device(CUdeviceptr address);
  CUresult allocate_host(std::size_t bytes, bool managed, void** address);
  CUresult free_host(void* address);
  CUresult add_host(void* address, std::size_t bytes);
  CUresult remove_host(void* address);
  void add_mapping(const Range& range);
  void remove_mapping(std::uintptr_t begin);
  /// All that belongs to a device: its context has been reset.
  void forget(int device);
  /// The range that holds `address`; bytes = 0 if none.
  Range find(std::uintptr_t address);
  /// Where the driver reaches an address; what it does not know is ordinary memory.
  template <class T>
  T* reach(T* address) {
    return reinterpret_cast<T*>(reach(reinterpret_cast<std::uintptr_t>(address)));
  }
  std::byte* reach(std::uintptr_t address);

 private:
  static std::string name_of(unsigned long long id);
  CUresult map(Range range, CUdeviceptr* address);
  void insert(Range range);
  static void unmap(const Range& range);
  Range take(std::uintptr_t begin);

  std::mutex mutex_;
  std::map<std::uintptr_t, Range> ranges_; ///< by begin
};

/// Operations in order, carried out by a thread. Those of the default stream of a device also come
/// behind all that is in blocking streams there, and the other way round.
class Stream {
 public:
  enum class Kind { kLegacy, kBlocking, kNonBlocking };
  explicit Stream(Kind kind, int priority = 0); ///< of the current context
  ~Stream();                                    ///< after all operations
  /// `waits`: for something else than the operations before it.
  void push(std::function<void()> operation, bool waits = false);
  bool idle();
  void synchronize();
  unsigned long long number() const { return number_; } ///< never used again
  int device() const { return device_; }
  Kind kind() const { return kind_; }
  /// Whether the context in which it was made has not been reset.
  bool exists() const;
  /// The capture that it belongs to; null: none. See join_capture().
  std::shared_ptr<Capture> capture;

  /// How far a stream has come; outlives it.
  struct Count {
    std::atomic<std::uint64_t> pushed{0}, done{0};
  };
  struct Point {
    std::shared_ptr<const Count> count;
    std::uint64_t number;
    bool reached() const { return count->done >= number; }
    void wait() const; ///< or until the device is lost
  };
  Point end() const { return {count_, count_->pushed}; }

 private:
  void run();
  std::vector<Point> others() const;
  /// In which operations begin in the order in which they have been put there.
  struct HardwareQueue {
    std::uint64_t queued = 0; ///< with the mutex of all streams held
    std::atomic<std::uint64_t> begun{0};
  };
  HardwareQueue* shared_queue(int priority) const;
  const Kind kind_;
  const int device_;
  const unsigned long long life_, number_;
  HardwareQueue* const queue_; ///< null: its own
  const std::shared_ptr<Count> count_ = std::make_shared<Count>();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> operations_;
  bool stop_ = false;
  std::thread thread_;
};

/// Waits for all streams of the current context.
void synchronize_all();

/// A point in streams of the context that was current when it was made.
class Event {
 public:
  int device() const { return device_; }
  std::uint64_t record();           ///< the number of this recording
  std::uint64_t recorded();         ///< the last one
  void reach(std::uint64_t number); ///< called by the stream
  bool reached(std::uint64_t number);
  void wait(std::uint64_t number);
  std::chrono::steady_clock::time_point when(); ///< it was last reached
  std::shared_ptr<Capture> capture;             ///< in which it was last recorded; null: none
  std::size_t node = 0;                         ///< of that capture's graph, that it comes behind

 private:
  const int device_ = current_device();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t recorded_ = 0;
  std::set<std::uint64_t> under_way_; ///< recordings, which streams reach in any order
  std::chrono::steady_clock::time_point when_;
};

/// The event of a handle. What is queued keeps it, as in the real driver.
const std::shared_ptr<Event>& event_of(CUevent handle);

/// Kernels that take other parameters than those of the library (host_kernels.h): makes the work of
/// a launch of `blocks`, with its parameters read.
using LaunchOf = std::function<void()> (*)(void** parameters, unsigned blocks);
/// Those of perf/gpu; null: none of that name.
LaunchOf find_perf_kernel(std::string_view name);

/// What is mapped of other processes has gone.
void forget_imports();

/// The stream behind a handle. The default streams are those of the current context, that of a
/// thread of the calling thread.
Stream& stream_of(CUstream handle);

} // namespace fake_cuda
