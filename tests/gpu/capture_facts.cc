// P4: calls while a stream is captured.
#include <cuda.h>

#include <cstdio>
#include <string>
#include <thread>

#include "tests/gpu/facts.h"

namespace whorl::facts {
namespace {

void in_a_capture(const Question& question, bool other_thread, bool relaxed) {
  const CUcontext context = enter();
  const auto call = question.prepare();
  const CUstream captured = new_stream();
  NEED(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUresult code = CUDA_SUCCESS;
  const auto make = [&] {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cuCtxSetCurrent(context);
    if (relaxed) NEED(cuThreadExchangeStreamCaptureMode(&mode));
    code = call();
  };
  if (other_thread) {
    std::thread(make).join();
  } else {
    make();
  }
  CUgraph graph = nullptr;
  const CUresult end = cuStreamEndCapture(captured, &graph);
  std::printf("gives %d, the capture %s (%d)\n", static_cast<int>(code),
              end == CUDA_SUCCESS ? "survives" : "is spoilt", static_cast<int>(end));
}

/// Asks about calls that only look at the stream being captured, and about the default stream while
/// a blocking stream is captured.
void look_at_a_captured_stream(const char* what, bool by_default, bool relaxed,
                               CUresult (*look)(CUstream)) {
  ask(std::string("P4 ") + what +
          (by_default ? " of the default stream beside a blocking stream" : "") +
          " in its capture" + (relaxed ? ", relaxed" : ""),
      [=] {
        enter();
        CUstream captured = nullptr;
        NEED(cuStreamCreate(&captured, by_default ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
        NEED(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        if (relaxed) NEED(cuThreadExchangeStreamCaptureMode(&mode));
        const CUresult code = look(by_default ? nullptr : captured);
        CUgraph graph = nullptr;
        const CUresult end = cuStreamEndCapture(captured, &graph);
        std::printf("gives %d, the capture %s (%d)\n", static_cast<int>(code),
                    end == CUDA_SUCCESS ? "survives" : "is spoilt", static_cast<int>(end));
      });
}

constexpr struct {
  const char* name;
  CUresult (*call)(CUstream);
} kLooks[] = {
    {"cuStreamGetId",
     [](CUstream stream) {
       unsigned long long id = 0;
       return cuStreamGetId(stream, &id);
     }},
    {"cuStreamGetCtx",
     [](CUstream stream) {
       CUcontext context = nullptr;
       return cuStreamGetCtx(stream, &context);
     }},
    {"cuStreamGetPriority",
     [](CUstream stream) {
       int priority = 0;
       return cuStreamGetPriority(stream, &priority);
     }},
    {"cuStreamIsCapturing",
     [](CUstream stream) {
       CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
       return cuStreamIsCapturing(stream, &status);
     }},
};

} // namespace

void ask_about_captures() {
  for (const auto& look : kLooks) {
    for (const bool by_default : {false, true}) {
      for (const bool relaxed : {false, true}) {
        look_at_a_captured_stream(look.name, by_default, relaxed, look.call);
      }
    }
  }
  for (const Question& one : questions()) {
    for (const bool other : {false, true}) {
      for (const bool relaxed : {false, true}) {
        ask(std::string("P4 ") + one.name + " in a global capture, " +
                (other ? "by another thread" : "by its thread") + (relaxed ? ", relaxed" : ""),
            [&] { in_a_capture(one, other, relaxed); });
      }
    }
  }
}

} // namespace whorl::facts
