// Functions of the driver for streams and events.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "tests/support/fake_cuda/contexts.h"
#include "tests/support/fake_cuda/device.h"
#include "tests/support/fake_cuda/fault.h"
#include "tests/support/fake_cuda/lock.h"

namespace {

using fake_cuda::context_of;
using fake_cuda::current_context;
using fake_cuda::event_of;
using fake_cuda::kFault;
using fake_cuda::lost;
using fake_cuda::Memory;
using fake_cuda::refused;
using fake_cuda::refused_in_capture;
using fake_cuda::stream_of;
using fake_cuda::unsafe_call_is_refused;

/// Returns the word at the address; if there is no memory, marks the device as lost and returns
/// nullptr.
std::uint32_t* word_at(CUdeviceptr address) {
  const Memory::Range range = Memory::all().find(address);
  if (range.bytes == 0) {
    fake_cuda::lose();
    return nullptr;
  }
  return reinterpret_cast<std::uint32_t*>(range.alias + (address - range.begin));
}

template <class Compare>
void wait_value(CUdeviceptr address, Compare reached) {
  const auto over = [&] {
    const auto* const word = word_at(address);
    return word == nullptr || reached(__atomic_load_n(word, __ATOMIC_ACQUIRE));
  };
  while (!lost() && !over()) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

void write_value(CUdeviceptr address, std::uint32_t value) {
  auto* const word = word_at(address);
  if (word != nullptr) __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/// Returns the error of an operation on words: FAKE_CUDA_NO_WORDS imitates a driver that has none,
/// FAKE_CUDA_NO_CAPTURED_WORDS one that cannot capture them.
CUresult refused_words(CUstream stream) {
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  if (std::getenv("FAKE_CUDA_NO_WORDS") != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return std::getenv("FAKE_CUDA_NO_CAPTURED_WORDS") != nullptr &&
                 fake_cuda::cannot_be_captured(stream_of(stream))
             ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
             : CUDA_SUCCESS;
}

} // namespace

#pragma GCC visibility push(default)
extern "C" {
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  const fake_cuda::DriverLock inside;
  if (lost()) return kFault;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  using Kind = fake_cuda::Stream::Kind;
  const Kind kind = (flags & CU_STREAM_NON_BLOCKING) != 0 ? Kind::kNonBlocking : Kind::kBlocking;
  *stream = reinterpret_cast<CUstream>(new fake_cuda::Stream(kind, priority));
  return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}
CUresult cuStreamGetPriority(CUstream, int* priority) {
  *priority = 0;
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  { const fake_cuda::DriverLock inside(stream); }
  if (!stream_of(stream).exists()) fake_cuda::count_stale_call();
  delete reinterpret_cast<fake_cuda::Stream*>(stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  { const fake_cuda::DriverLock inside(stream); }
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  if (unsafe_call_is_refused() || fake_cuda::cannot_be_captured(stream_of(stream))) {
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  stream_of(stream).synchronize();
  return lost() ? kFault : CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream stream) {
  const fake_cuda::DriverLock inside(stream);
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  if (stream_of(stream).kind() == fake_cuda::Stream::Kind::kLegacy &&
      fake_cuda::default_stream_is_refused()) {
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (unsafe_call_is_refused() || fake_cuda::cannot_be_captured(stream_of(stream))) {
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return stream_of(stream).idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  const fake_cuda::DriverLock inside(stream);
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  if (fake_cuda::is_invalidated(stream_of(stream))) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  *context = context_of(stream_of(stream).device());
  return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return cuStreamGetCaptureInfo_v2(handle, status, nullptr, nullptr, nullptr, nullptr);
}
CUresult cuStreamGetId(CUstream stream, unsigned long long* number) {
  const fake_cuda::DriverLock inside(stream);
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  // Spoils a capture of the stream in every mode, as driver 580 does.
  if (stream_of(stream).kind() == fake_cuda::Stream::Kind::kLegacy &&
      fake_cuda::default_stream_is_refused()) {
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (fake_cuda::cannot_be_captured(stream_of(stream))) {
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  *number = reinterpret_cast<std::uintptr_t>(stream) <= 1 ? 1 : stream_of(stream).number();
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned flags) {
  const fake_cuda::DriverLock inside(stream);
  if (const CUresult bad = refused_in_capture(stream); bad != CUDA_SUCCESS) return bad;
  const std::shared_ptr<fake_cuda::Event> event = event_of(handle);
  if (flags == CU_EVENT_WAIT_EXTERNAL) { // waits for the recording that is the last at launch
    const auto wait = [event]() -> std::function<void()> {
      return [event, number = event->recorded()] { event->wait(number); };
    };
    return fake_cuda::record(stream_of(stream), wait, true) ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult bad = fake_cuda::join_capture(stream_of(stream), *event);
      bad != CUDA_SUCCESS) {
    return bad;
  }
  if (fake_cuda::capture_of(stream_of(stream)) != 0) return CUDA_SUCCESS;
  stream_of(stream).push([event, number = event->recorded()] { event->wait(number); }, true);
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                             unsigned flags) {
  const fake_cuda::DriverLock inside(stream);
  if (const CUresult bad = refused_words(stream); bad != CUDA_SUCCESS) return bad;
  const auto reached = [=](std::uint32_t now) {
    return (flags & 3) == CU_STREAM_WAIT_VALUE_EQ ? now == value
                                                  : static_cast<std::int32_t>(now - value) >= 0;
  };
  stream_of(stream).push([=] { wait_value(address, reached); }, true);
  return CUDA_SUCCESS;
}
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned) {
  const fake_cuda::DriverLock inside(stream);
  if (const CUresult bad = refused_words(stream); bad != CUDA_SUCCESS) return bad;
  stream_of(stream).push([=] { write_value(address, value); });
  return CUDA_SUCCESS;
}
CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations,
                            unsigned flags) {
  const fake_cuda::DriverLock inside(stream);
  if (const CUresult bad = refused_words(stream); bad != CUDA_SUCCESS) return bad;
  if (count == 0 || count >= 256 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const CUstreamBatchMemOpParams& operation = operations[i];
    switch (operation.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        cuStreamWaitValue32(stream, operation.waitValue.address, operation.waitValue.value,
                            operation.waitValue.flags);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        cuStreamWriteValue32(stream, operation.writeValue.address, operation.writeValue.value, 0);
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  const fake_cuda::DriverLock inside;
  if (lost()) return kFault;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *event = fake_cuda::make_event();
  return CUDA_SUCCESS;
}
CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned flags) {
  const fake_cuda::DriverLock inside(stream);
  if (const CUresult bad = refused_in_capture(stream); bad != CUDA_SUCCESS) return bad;
  const std::shared_ptr<fake_cuda::Event> event = event_of(handle);
  if (event->device() != stream_of(stream).device()) return CUDA_ERROR_INVALID_HANDLE;
  const auto record = [event]() -> std::function<void()> {
    return [event, number = event->record()] { event->reach(number); };
  };
  if (flags == CU_EVENT_RECORD_EXTERNAL) { // records at each launch of the graph
    return fake_cuda::record(stream_of(stream), record) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if (fake_cuda::record_in_capture(stream_of(stream), *event)) return CUDA_SUCCESS;
  stream_of(stream).push(record());
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  return cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}
CUresult cuEventQuery(CUevent handle) {
  const fake_cuda::DriverLock inside(handle);
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::shared_ptr<fake_cuda::Event> event = event_of(handle);
  if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  return event->reached(event->recorded()) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventSynchronize(CUevent handle) {
  { const fake_cuda::DriverLock inside(handle); }
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::shared_ptr<fake_cuda::Event> event = event_of(handle);
  if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  if (!event->exists()) fake_cuda::count_stale_call();
  event->wait(event->recorded());
  return lost() ? kFault : CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent handle) {
  const fake_cuda::DriverLock inside(handle);
  fake_cuda::destroy_event(handle);
  return CUDA_SUCCESS;
}

} // extern "C"
