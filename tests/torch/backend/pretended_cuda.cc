// A Python module that lets a torch without CUDA have tensors, streams and events of the pretended
// device of tests/support/fake_cuda: as much of it as a process group needs. Everything that looks
// asynchronous is, and the host cannot touch the memory.
#include <ATen/EmptyTensor.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/extension.h>
#include <torch/library.h>

#include <atomic>
#include <map>

// Of the driver, by their binary names.
extern "C" {
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuCtxSetCurrent(void* context);
int cuMemAlloc_v2(std::uintptr_t* pointer, std::size_t bytes);
int cuMemFree_v2(std::uintptr_t pointer);
int cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned flags);
int cuMemHostGetDevicePointer_v2(std::uintptr_t* address, void* pointer, unsigned flags);
int cuMemcpyAsync(std::uintptr_t to, std::uintptr_t from, std::size_t bytes, void* stream);
int cuStreamCreate(void** stream, unsigned flags);
int cuStreamSynchronize(void* stream);
int cuStreamQuery(void* stream);
int cuStreamWaitEvent(void* stream, void* event, unsigned flags);
int cuStreamWaitValue32_v2(void* stream, std::uintptr_t address, std::uint32_t value, unsigned);
int cuStreamBeginCapture_v2(void* stream, int mode);
int cuStreamEndCapture(void* stream, void** graph);
int cuStreamIsCapturing(void* stream, int* status);
int cuEventCreate(void** event, unsigned flags);
int cuEventRecord(void* event, void* stream);
int cuEventQuery(void* event);
int cuEventSynchronize(void* event);
int cuEventDestroy_v2(void* event);
}

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;
using c10::StreamId;

const Device kDevice(c10::kCUDA, 0);
thread_local StreamId current_stream = 0;
std::atomic<int> recorded_uses{0};

void good(int error) { TORCH_CHECK(error == 0, "the pretended driver failed with ", error); }
/// As CUDA's runtime does before whatever it is asked for: the device's context is the thread's.
void enter() {
  thread_local bool entered = false;
  if (std::exchange(entered, true)) return;
  void* context = nullptr;
  good(cuDevicePrimaryCtxRetain(&context, 0));
  good(cuCtxSetCurrent(context));
}
void* handle_of(StreamId id) {
  enter();
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(id));
}
Stream stream_with(StreamId id) { return Stream(Stream::UNSAFE, kDevice, id); }
StreamId new_stream() {
  void* handle = nullptr;
  enter();
  good(cuStreamCreate(&handle, 1));
  return static_cast<StreamId>(reinterpret_cast<std::intptr_t>(handle));
}
std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  Device exchangeDevice(Device) const override { return kDevice; }
  Device getDevice() const override { return kDevice; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  DeviceIndex deviceCount() const noexcept override { return 1; }
  Stream getStream(Device) const override { return stream_with(current_stream); }
  Stream getDefaultStream(Device) const override { return stream_with(0); }
  Stream getStreamFromGlobalPool(Device, bool = false) const override {
    return stream_with(new_stream());
  }
  Stream exchangeStream(Stream stream) const override {
    return stream_with(std::exchange(current_stream, stream.id()));
  }
  void record(void** event, const Stream& stream, DeviceIndex,
              const c10::EventFlag) const override {
    enter();
    if (*event == nullptr) good(cuEventCreate(event, 2));
    good(cuEventRecord(*event, handle_of(stream.id())));
  }
  void block(void* event, const Stream& stream) const override {
    good(cuStreamWaitEvent(handle_of(stream.id()), event, 0));
  }
  bool queryEvent(void* event) const override { return cuEventQuery(event) == 0; }
  void synchronizeEvent(void* event) const override { good(cuEventSynchronize(event)); }
  void destroyEvent(void* event, DeviceIndex) const noexcept override { cuEventDestroy_v2(event); }
  bool queryStream(const Stream& stream) const override {
    return cuStreamQuery(handle_of(stream.id())) == 0;
  }
  bool isStreamCapturing(const Stream& stream) const override {
    int status = 0;
    good(cuStreamIsCapturing(handle_of(stream.id()), &status));
    return status != 0;
  }
  void synchronizeStream(const Stream& stream) const override {
    good(cuStreamSynchronize(handle_of(stream.id())));
  }
  // As memory is never given to another tensor before the process ends, to count is enough.
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override { ++recorded_uses; }
};

void free_nothing(void*) {}

struct PretendedAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    std::uintptr_t address = 0;
    if (bytes > 0) {
      enter();
      good(cuMemAlloc_v2(&address, bytes));
    }
    auto* const pointer = reinterpret_cast<void*>(address);
    return {pointer, pointer, &free_nothing, kDevice};
  }
  void copy_data(void*, const void*, std::size_t) const override { TORCH_CHECK(false, "no copy"); }
};
PretendedAllocator allocator;

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef strides,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, strides, &allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                           type.value_or(at::kFloat));
}

/// On the CPU, with the strides of the original, whose whole storage it has.
at::Tensor to_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  const auto bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
  at::Tensor storage = at::empty({bytes}, at::kByte);
  void* const stream = handle_of(current_stream);
  if (bytes > 0) {
    good(cuMemcpyAsync(address_of(storage.data_ptr()), address_of(tensor.storage().data()),
                       static_cast<std::size_t>(bytes), stream));
    good(cuStreamSynchronize(stream));
  }
  at::Tensor host = at::empty({0}, tensor.options().device(at::kCPU));
  return host.set_(storage.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool) {
  if (to.numel() == 0) return to;
  void* const stream = handle_of(current_stream);
  if (to.is_cuda() && from.is_cuda() && to.is_contiguous() && from.is_contiguous() &&
      to.scalar_type() == from.scalar_type() && to.sizes() == from.sizes()) {
    good(
        cuMemcpyAsync(address_of(to.data_ptr()), address_of(from.data_ptr()), to.nbytes(), stream));
    return to;
  }
  at::Tensor values = to_host(to);
  values.copy_(to_host(from));
  if (to.is_cpu()) return to;
  good(cuMemcpyAsync(address_of(to.storage().data()), address_of(values.storage().data()),
                     to.storage().nbytes(), stream));
  good(cuStreamSynchronize(stream)); // the values are no longer there afterwards
  return to;
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("copy_", &copy);
  library.impl("view", &at::native::view);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
}

std::map<StreamId, std::uint32_t*> gates;

/// The stream goes no further until release().
void hold(StreamId stream) {
  void* const handle = handle_of(stream);
  auto* const word = new std::uint32_t(0);
  gates[stream] = word;
  std::uintptr_t address = 0;
  good(cuMemHostRegister_v2(word, sizeof *word, 0));
  good(cuMemHostGetDevicePointer_v2(&address, word, 0));
  good(cuStreamWaitValue32_v2(handle, address, 1, 0));
}
void release(StreamId stream) {
  __atomic_store_n(gates.at(stream), 1U, __ATOMIC_RELEASE);
  gates.erase(stream);
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  good(cuInit(0));
  static const Guard guard;
  c10::impl::registerDeviceGuard(c10::kCUDA, &guard);
  const auto without_gil = pybind11::call_guard<pybind11::gil_scoped_release>();
  module.def(
      "to_device",
      [](const at::Tensor& tensor) {
        at::Tensor copied =
            at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(kDevice));
        return copied.copy_(tensor);
      },
      without_gil);
  module.def(
      "to_host", [](const at::Tensor& tensor) { return to_host(tensor).clone(); }, without_gil);
  module.def("new_stream", &new_stream);
  module.def("current_stream", [] { return current_stream; });
  module.def("set_stream", [](StreamId id) { return std::exchange(current_stream, id); });
  module.def(
      "synchronize", [](StreamId id) { good(cuStreamSynchronize(handle_of(id))); }, without_gil);
  module.def("idle", [](StreamId id) { return cuStreamQuery(handle_of(id)) == 0; });
  module.def("begin_capture",
             [](StreamId id) { good(cuStreamBeginCapture_v2(handle_of(id), 2)); }); // relaxed
  module.def("end_capture", [](StreamId id) {
    void* graph = nullptr;
    good(cuStreamEndCapture(handle_of(id), &graph));
  });
  module.def("hold", &hold);
  module.def("release", &release);
  module.def("recorded_uses", [] { return recorded_uses.load(); });
}
