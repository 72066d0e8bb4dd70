#include "device/ipc/graph_replay.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/thread.h"
#include "engine/request.h"
#include "gpu/driver.h"
#include "gpu/kernels.h"
#include "gpu/stream_words.h"
#include "gpu/work.h"

namespace whorl {
class DeviceReplays::Batch {
 public:
  explicit Batch(const DeviceReplays& replays) : replays_(replays) {}
  void write(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
    words_.write(address(word), value);
  }
  void wait(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
    words_.wait(address(word), value, CU_STREAM_WAIT_VALUE_EQ);
  }
  Status queue(CUstream stream) { return words_.queue(stream); }

 private:
  CUdeviceptr address(const std::atomic<std::uint32_t>& word) const noexcept {
    return reinterpret_cast<CUdeviceptr>(replays_.sync_.on_device(&word));
  }

  // Maximum, of the leader in enter(): two for each other rank, and `replaying`.
  static_assert(2 * (gpu::kMaxBuffers - 1) + 1 <= gpu::StreamWords::kMaxOperations);
  const DeviceReplays& replays_;
  gpu::StreamWords words_;
};

Status DeviceReplays::prepare() {
  if (prepared_) return impossible_;
  prepared_ = true;
  // The probe has a capture of its own, because an operation that the driver refuses invalidates
  // the capture.
  impossible_ = probe();
  if (impossible_.ok()) impossible_ = fault_.prepare();
  return impossible_;
}

Status DeviceReplays::probe() const {
  const gpu::CaptureModeGuard relaxed;
  CUstream stream = nullptr;
  WHORL_CUDA_TRY(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  const auto capture = [&]() -> Status {
    WHORL_CUDA_TRY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    Batch batch(*this);
    batch.write(board_.barrier(rank_).replay_done, 0);
    batch.wait(board_.barrier(rank_).replay_done, 0);
    Status status = batch.queue(stream);
    CUgraph graph = nullptr;
    const CUresult ended = gpu::driver()->cuStreamEndCapture(stream, &graph);
    if (graph != nullptr) static_cast<void>(gpu::driver()->cuGraphDestroy(graph));
    return status.ok() ? gpu::check(ended, "cuStreamEndCapture") : status;
  };
  Status status = capture();
  static_cast<void>(gpu::driver()->cuStreamDestroy(stream));
  return status;
}

Status DeviceReplays::capture(const StreamSync::Operation& operation, const Capture& capture,
                              const std::function<Status()>& share) {
  if (!thread_.joinable()) {
    auto thread = start_thread("whorl-replays", [this] { watch_all(); });
    if (!thread.ok()) return thread.status();
    thread_ = *std::move(thread);
  }
  WHORL_TRY(follow(operation, capture));
  hold(capture);
  const auto number = static_cast<std::uint32_t>(++captured_);
  {
    const std::lock_guard lock(mutex_);
    forget_gone();
    operations_.push_back({captured_, operation.timeout_ns, operation.call, gone_});
  }
  WHORL_TRY(count(operation.stream));
  WHORL_TRY(enter(operation, number));
  WHORL_TRY(share());
  WHORL_TRY(leave(operation, number));
  return ends_.record(operation.stream, capture.id);
}

/// Makes the stream wait for the last operation of the same capture, if it may be in another
/// stream.
Status DeviceReplays::follow(const StreamSync::Operation& operation, const Capture& capture) {
  const bool in_order = capture.id == last_.id && operation.stream_id == last_stream_;
  last_stream_ = operation.stream_id;
  if (!in_order && ends_.has(capture.id)) return ends_.follow(operation.stream, capture.id);
  return {};
}

/// Makes the driver set gone_ when the graph is destroyed.
void DeviceReplays::hold(const Capture& capture) {
  if (gone_ != nullptr && capture.id == last_.id) return;
  last_ = capture;
  gone_ = std::make_shared<std::atomic<bool>>(false);
  const gpu::Driver& driver = *gpu::driver();
  if (capture.graph == nullptr || driver.cuUserObjectCreate == nullptr ||
      driver.cuUserObjectRelease == nullptr || driver.cuGraphRetainUserObject == nullptr) {
    return;
  }
  // The driver calls this in a thread of its own, perhaps after the communicator has been
  // destroyed.
  const auto set_gone = [](void* gone) {
    const std::unique_ptr<Gone> own(static_cast<Gone*>(gone));
    (*own)->store(true, std::memory_order_release); // pairs with the load of forget_gone()
  };
  auto own = std::make_unique<Gone>(gone_);
  CUuserObject object = nullptr;
  if (driver.cuUserObjectCreate(&object, own.get(), set_gone, 1,
                                CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) != CUDA_SUCCESS) {
    return;
  }
  static_cast<void>(own.release()); // `set_gone` deletes the flag's owner
  if (driver.cuGraphRetainUserObject(capture.graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) ==
      CUDA_SUCCESS) {
    return;
  }
  gone_ = std::make_shared<std::atomic<bool>>(false); // never set
  static_cast<void>(driver.cuUserObjectRelease(object, 1));
}

/// Captures a kernel that counts the operations that the rank's streams have begun.
Status DeviceReplays::count(CUstream stream) const {
  SharedState::StreamBarrier& barrier = board_.barrier(rank_);
  barrier.one.store(1, std::memory_order_release); // graphs are launched after this
  gpu::Work work{};
  work.sources[0] = reinterpret_cast<const std::byte*>(sync_.on_device(&barrier.replays));
  work.sources[1] = reinterpret_cast<const std::byte*>(sync_.on_device(&barrier.one));
  work.destinations[0] = reinterpret_cast<std::byte*>(sync_.on_device(&barrier.replays));
  work.segments[0] = {.count = 1, .sources = 2, .destinations = 1};
  work.n_segments = 1;
  CUcontext context = nullptr;
  WHORL_CUDA_TRY(cuCtxGetCurrent(&context));
  const auto kernels = gpu::Kernels::of(context);
  if (!kernels.ok()) return kernels.status();
  return (*kernels)->combine(work, DataType::kUint32, ReduceOp::kSum, stream);
}

Status DeviceReplays::enter(const StreamSync::Operation& operation, std::uint32_t number) const {
  const SharedState::StreamBarrier& own = board_.barrier(rank_);
  Batch batch(*this);
  batch.write(own.replaying, number);
  if (rank_ != kDeviceLeader) batch.write(own.replay_ready, number);
  for (const bool arrived : {false, true}) {
    for (int rank = 0; rank_ == kDeviceLeader && rank < board_.nranks(); ++rank) {
      if (rank == kDeviceLeader) continue;
      const auto& ready = board_.barrier(rank).replay_ready;
      arrived ? batch.write(ready, 0) : batch.wait(ready, number);
    }
  }
  return batch.queue(operation.stream);
}

Status DeviceReplays::leave(const StreamSync::Operation& operation, std::uint32_t number) const {
  const SharedState::StreamBarrier& own = board_.barrier(rank_);
  Batch batch(*this);
  for (int rank = 0; rank_ == kDeviceLeader && rank < board_.nranks(); ++rank) {
    if (rank != kDeviceLeader) batch.write(board_.barrier(rank).replay_done, number);
  }
  if (rank_ != kDeviceLeader) {
    batch.wait(own.replay_done, number);
    batch.write(own.replay_done, 0);
  }
  batch.write(own.replaying, 0);
  return batch.queue(operation.stream);
}

/// Forgets operations whose graphs have been destroyed. The caller holds the mutex.
void DeviceReplays::forget_gone() {
  std::erase_if(operations_, [](const Captured& operation) {
    return operation.gone->load(std::memory_order_acquire); // pairs with the store of hold()
  });
}

std::uint64_t DeviceReplays::released() {
  const std::lock_guard lock(mutex_);
  forget_gone();
  return operations_.empty() ? next() : operations_.front().number;
}

} // namespace whorl
