#include "gpu/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/event.h"
#include "base/thread.h"
#include "gpu/driver.h"

namespace whorl::gpu {
namespace {

/// Returns the device of the current context; −1: unknown.
CUdevice current_device() noexcept {
  CUdevice device = -1;
  return driver()->cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
}

Status lost(CUresult result, const char* asked, CUdevice device) {
  return Status::error(
      Code::kCudaError,
      fmt::format(
          "{} has failed: {}. Most likely a kernel or a copy that the program queued "
          "before has accessed memory that it must not (compute-sanitizer finds it); "
          "nothing that this process has queued there is done any more",
          device >= 0 ? fmt::format("CUDA device {}", device) : std::string("the CUDA device"),
          check(result, asked).message()));
}

} // namespace

bool is_fault(CUresult result) noexcept {
  // Results that older headers lack: CUDA_ERROR_CONTAINED, …_TENSOR_MEMORY_LEAK,
  // …_MPS_CLIENT_TERMINATED.
  for (const int later : {226, 721, 810}) {
    if (static_cast<int>(result) == later) return true;
  }
  switch (result) {
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

Status current_fault() {
  if (driver() == nullptr) return {};
  CUcontext context = nullptr;
  if (driver()->cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) return {};
  const CaptureModeGuard relaxed;
  // No query of the default stream: if a stream that synchronises with it is being captured, the
  // query would invalidate the capture.
  CUevent event = nullptr;
  CUresult result = driver()->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) {
    result = driver()->cuEventQuery(event);
    static_cast<void>(driver()->cuEventDestroy(event));
  }
  return is_fault(result) ? lost(result, "cuEventQuery", current_device()) : Status();
}

/// Query of one probe, shared with the thread that makes it.
struct FaultProbe::Query {
  std::uint64_t context = 0; ///< id of the event's context
  CUdevice device = -1;
  CUevent event = nullptr;
  std::atomic<bool> asked{false}, dropped{false}, lost{false};
  Status fault; ///< error; constant once `lost` is true

  /// Asks the driver, if the probe wants to know.
  void make() {
    if (!asked.exchange(false, std::memory_order_relaxed)) return;
    if (lost.load(std::memory_order_relaxed)) return;
    const CaptureModeGuard relaxed;
    const CUresult result = driver()->cuEventQuery(event);
    // No other code uses the event, so every other result means that it is gone with its context.
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) return;
    fault = without_exceptions([&] { return gpu::lost(result, "cuEventQuery", device); });
    lost.store(true, std::memory_order_release); // pairs with look()
  }
};

/// Thread that makes the queries: asleep while no probe asks, and alive as long as the process.
class FaultProbe::Thread {
 public:
  static Thread& instance() {
    static auto& thread = *new Thread; // never destroyed: probes may outlive main()
    return thread;
  }

  /// Gives the query an event of the current context, and takes the query up. Events are used
  /// again, never destroyed: their context may be gone when their probe is.
  Status add(std::shared_ptr<Query> query) {
    const std::lock_guard lock(mutex_);
    if (std::vector<CUevent>& idle = idle_[query->context]; !idle.empty()) {
      query->event = idle.back();
      idle.pop_back();
    } else {
      WHORL_CUDA_TRY(cuEventCreate(&query->event, CU_EVENT_DISABLE_TIMING));
    }
    if (!started_) WHORL_TRY(start_detached_thread("whorl-faults", [this] { run(); }));
    started_ = true;
    queries_.push_back(std::move(query));
    return {};
  }

  void notify() noexcept { event_.notify(); }

 private:
  void run() {
    const CommError never_set;
    while (true) {
      Event::Waiter waiter(event_);
      std::shared_ptr<Query> due;
      static_cast<void>(wait_until(
          [&] {
            due = first_due();
            return due == nullptr ? Progress::kIdle : Progress::kDone;
          },
          {.timeout_ns = UINT64_MAX, .spins = 0, .yield_ns = 0, .block_ns = 1'000'000'000},
          never_set, waiter));
      if (due->dropped.load(std::memory_order_acquire)) { // pairs with ~FaultProbe()
        forget(due);
      } else {
        due->make(); // without the mutex, because the driver may block
      }
    }
  }

  /// Returns the first query that is to be made, or whose probe is gone; null if there is none.
  std::shared_ptr<Query> first_due() {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(queries_.begin(), queries_.end(), [](const auto& query) {
      return query->asked.load(std::memory_order_relaxed) ||
             query->dropped.load(std::memory_order_relaxed);
    });
    return found == queries_.end() ? nullptr : *found;
  }

  void forget(const std::shared_ptr<Query>& query) {
    const std::lock_guard lock(mutex_);
    if (!query->lost.load(std::memory_order_relaxed)) {
      static_cast<void>(without_exceptions([&]() -> Status {
        idle_[query->context].push_back(query->event);
        return {};
      }));
    }
    std::erase(queries_, query);
  }

  std::mutex mutex_;
  bool started_ = false;
  std::vector<std::shared_ptr<Query>> queries_;
  std::map<std::uint64_t, std::vector<CUevent>>
      idle_; ///< events without a probe, by the ids of their contexts
  Event event_;
};

FaultProbe::~FaultProbe() {
  if (query_ == nullptr) return;
  query_->dropped.store(true, std::memory_order_release); // pairs with the thread's load
  Thread::instance().notify();
}

Status FaultProbe::prepare() {
  auto query = std::make_shared<Query>();
  CUcontext context = nullptr;
  WHORL_CUDA_TRY(cuCtxGetCurrent(&context));
  query->context = id_of(context);
  query->device = current_device();
  WHORL_TRY(Thread::instance().add(query));
  query_ = std::move(query);
  return {};
}

Status FaultProbe::look() const {
  if (query_ == nullptr) return {};
  if (query_->lost.load(std::memory_order_acquire)) return query_->fault; // pairs with make()
  if (!query_->asked.exchange(true, std::memory_order_relaxed)) Thread::instance().notify();
  return {};
}

} // namespace whorl::gpu
