#include "bindings/torch/src/device_stream.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <algorithm>

#include "bindings/torch/src/device_run.h"
#include "bindings/torch/src/errors.h"

namespace whorl_torch {
namespace {

/// Functions of the CUDA driver, by their binary interface: torch's generic interface makes no
/// streams but those of its pool.
struct Driver {
  using Create = int (*)(void** stream, unsigned flags);
  using Describe = int (*)(int error, const char** text);
  using ExchangeMode = int (*)(int* mode);
  Create create = nullptr;
  Describe describe = nullptr;
  ExchangeMode exchange_mode = nullptr;
  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    create = reinterpret_cast<Create>(dlsym(library, "cuStreamCreate"));
    describe = reinterpret_cast<Describe>(dlsym(library, "cuGetErrorString"));
    exchange_mode =
        reinterpret_cast<ExchangeMode>(dlsym(library, "cuThreadExchangeStreamCaptureMode"));
  }
};

const Driver& the_driver() {
  static const Driver driver;
  return driver;
}

void* make_stream(c10::Device device) {
  constexpr unsigned kNonBlocking = 1; // CU_STREAM_NON_BLOCKING: not ordered by the default stream
  const Driver& driver = the_driver();
  if (driver.create == nullptr) {
    fail<c10::DistBackendError>("whorl: no stream can be made on ", device,
                                ": libcuda.so.1 has no cuStreamCreate; pass tensor.cpu()");
  }
  // The first call of the runtime on a thread makes the device's context current there.
  c10::Event(device.type()).record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  void* handle = nullptr;
  if (const int error = driver.create(&handle, kNonBlocking); error != 0) {
    const char* text = nullptr;
    if (driver.describe != nullptr) driver.describe(error, &text);
    fail<c10::DistBackendError>("whorl: no stream could be made on ", device,
                                ": cuStreamCreate failed with ", error, ", ",
                                text == nullptr ? "which the driver does not explain" : text);
  }
  return handle;
}

struct FreeStreams {
  std::mutex mutex;
  std::map<c10::DeviceIndex, std::vector<void*>> handles;
};
FreeStreams& free_streams() {
  static auto* const instance = new FreeStreams; // never destroyed: groups may outlive statics
  return *instance;
}

} // namespace

std::optional<c10::Device> common_device(const char* operation,
                                         const std::vector<at::Tensor>& outputs,
                                         const std::vector<at::Tensor>& inputs) {
  std::optional<c10::Device> common;
  for (const auto* list : {&outputs, &inputs}) {
    for (const at::Tensor& tensor : *list) {
      if (!tensor.defined()) continue;
      if (!common) common = tensor.device();
      if (*common == tensor.device()) continue;
      fail<c10::ValueError>(operation, ": the tensors lie on ", *common, " and on ",
                            tensor.device(), "; all of one call must be on one device");
    }
  }
  if (common && common->is_cpu()) return std::nullopt;
  return common;
}

std::string why_not_on(c10::Device device) {
  if (!device.is_cuda()) return "and whorl communicates memory of the host and of CUDA devices";
  int supported = 0;
  whorlDeviceSupport(&supported);
  if (supported != 0) return {};
  return c10::str("and libwhorl takes no memory of devices here (", whorlGetLastError(nullptr),
                  ")");
}

RelaxedCapture::RelaxedCapture() {
  if (the_driver().exchange_mode != nullptr) the_driver().exchange_mode(&mode_);
}

RelaxedCapture::~RelaxedCapture() {
  if (the_driver().exchange_mode != nullptr) the_driver().exchange_mode(&mode_);
}

std::shared_ptr<OwnStream> OwnStream::take(c10::Device device) {
  const c10::DeviceGuard guard(device);
  void* handle = nullptr;
  {
    FreeStreams& free = free_streams();
    const std::lock_guard lock(free.mutex);
    if (auto& handles = free.handles[device.index()]; !handles.empty()) {
      handle = handles.back();
      handles.pop_back();
    }
  }
  if (handle == nullptr) handle = make_stream(device);
  // The id of a stream that torch has not made is its handle (torch.cuda.ExternalStream).
  const auto id = static_cast<c10::StreamId>(reinterpret_cast<std::intptr_t>(handle));
  return std::shared_ptr<OwnStream>(
      new OwnStream(c10::Stream(c10::Stream::UNSAFE, device, id), handle));
}

OwnStream::~OwnStream() {
  FreeStreams& free = free_streams();
  const std::lock_guard lock(free.mutex);
  free.handles[stream_.device_index()].push_back(handle_);
}

void OwnStream::note_queued(std::weak_ptr<DeviceRun> next) {
  const std::lock_guard lock(mutex_);
  while (!runs_.empty()) {
    const auto run = runs_.front().lock();
    if (run != nullptr && !run->completed()) break;
    runs_.pop_front();
  }
  runs_.push_back(std::move(next));
}

bool OwnStream::idle() const noexcept {
  const RelaxedCapture relaxed;
  try {
    return c10::impl::VirtualGuardImpl(stream_.device_type()).queryStream(stream_);
  } catch (const std::exception&) {
    return true; // an error of the device, or a stream that is being captured
  }
}

std::shared_ptr<OwnStream> DeviceStreams::on(c10::Device device) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<OwnStream>& stream = streams_[device.index()];
  if (stream == nullptr) stream = OwnStream::take(device);
  return stream;
}

void DeviceStreams::synchronize() {
  std::vector<std::shared_ptr<OwnStream>> streams;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [device, stream] : streams_) streams.push_back(stream);
  }
  for (const auto& stream : streams) {
    c10::Event point(stream->stream().device_type());
    point.record(stream->stream());
    point.synchronize();
  }
}

bool DeviceStreams::idle_by(Deadline deadline) {
  const std::lock_guard lock(mutex_);
  const auto idle = [this] {
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const auto& entry) { return entry.second->idle(); });
  };
  for (Backoff backoff; !idle(); backoff.sleep()) {
    if (has_passed(deadline)) return false;
  }
  return true;
}

} // namespace whorl_torch
