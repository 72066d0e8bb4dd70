#include "perf/common/watched_algorithm.h"

#ifndef WHORL_PERF_NCCL
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <set>

#include "whorl/profiler.h"

namespace perf {
namespace {

std::atomic<const char*> last_algorithm{""};
std::mutex mutex;
int periods = 0;      // guarded by `mutex`
std::set<int*> masks; // masks of all communicators; guarded by `mutex`

/// Adds `change` to the number of periods, and asks for events while there is one.
void change_periods(int change) {
  const std::lock_guard lock(mutex);
  periods += change;
  for (int* const mask : masks) {
    std::atomic_ref(*mask).store(periods > 0 ? whorlProfileColl : 0, std::memory_order_relaxed);
  }
}

whorlResult_t init(void** context, int* mask, const char*, std::uint64_t, int, int) {
  const std::lock_guard lock(mutex);
  *context = mask;
  masks.insert(mask);
  return whorlSuccess;
}

whorlResult_t start_event(void*, void**, const whorlProfilerEvent_v1_t* event) {
  last_algorithm.store(event->algo, std::memory_order_relaxed);
  return whorlSuccess;
}

whorlResult_t stop_event(void*, void*) { return whorlSuccess; }

whorlResult_t finalize(void* context) {
  const std::lock_guard lock(mutex);
  masks.erase(static_cast<int*>(context));
  return whorlSuccess;
}

} // namespace

void offer_profiler() { ::setenv("WHORL_PROFILER_PLUGIN", "STATIC", 0); }

WatchedAlgorithm::WatchedAlgorithm() {
  last_algorithm = "";
  change_periods(1);
}
WatchedAlgorithm::~WatchedAlgorithm() { change_periods(-1); }
std::string WatchedAlgorithm::name() const { return last_algorithm.load(); }

} // namespace perf

/// Plug-in in this program, see offer_profiler().
const whorlProfiler_v1_t whorlProfiler_v1{.name = "perf programs",
                                          .init = perf::init,
                                          .startEvent = perf::start_event,
                                          .stopEvent = perf::stop_event,
                                          .finalize = perf::finalize};
#else
namespace perf {
void offer_profiler() {}
WatchedAlgorithm::WatchedAlgorithm() = default;
WatchedAlgorithm::~WatchedAlgorithm() = default;
std::string WatchedAlgorithm::name() const { return {}; }
} // namespace perf
#endif
