// Version, error texts, support for devices.
#include "api/support.h"
#include "base/lasting.h"
#include "comm/interrupt.h"
#include "device/common/support.h"

using namespace whorl;       // NOLINT: this file is the bridge between the two worlds
using namespace whorl::capi; // NOLINT

extern "C" {

whorlResult_t whorlGetVersion(int* version) {
  return guarded("whorlGetVersion", [&]() -> Status {
    if (version == nullptr) return invalid("whorlGetVersion", "version is NULL");
    *version = WHORL_VERSION_CODE;
    return {};
  });
}

whorlResult_t whorlGetRelease(int* release) {
  return guarded("whorlGetRelease", [&]() -> Status {
    if (release == nullptr) return invalid("whorlGetRelease", "release is NULL");
    *release = WHORL_RELEASE_CODE;
    return {};
  });
}

whorlResult_t whorlSetInterruptCheck(int (*interrupted)(void)) {
  interrupt_check.store(interrupted, std::memory_order_relaxed);
  return whorlSuccess;
}

whorlResult_t whorlGetInterruptCheck(int (**interrupted)(void)) {
  return guarded("whorlGetInterruptCheck", [&]() -> Status {
    if (interrupted == nullptr) return invalid("whorlGetInterruptCheck", "interrupted is NULL");
    *interrupted = interrupt_check.load(std::memory_order_relaxed);
    return {};
  });
}

const char* whorlGetErrorString(whorlResult_t result) {
  switch (result) {
    case whorlSuccess:
      return "no error";
    case whorlUnhandledCudaError:
      return "a CUDA call failed";
    case whorlSystemError:
      return "a system call failed";
    case whorlInternalError:
      return "internal error";
    case whorlInvalidArgument:
      return "invalid argument";
    case whorlInvalidUsage:
      return "invalid usage";
    case whorlRemoteError:
      return "another rank failed or cannot be reached";
    case whorlInProgress:
      return "in progress";
    case whorlNumResults:
      break;
  }
  return "unknown result code";
}

const char* whorlGetLastError(whorlComm_t comm) {
  auto& text = lasting_of_thread<std::string, struct ReturnedError>(); // keeps what is returned
  try {
    text = last_error();
    const Inside inside(comm);
    if (inside && comm->magic.load() == whorlComm::kAlive) {
      Status status = comm->error();
      if (status.ok() && comm->created.load(std::memory_order_acquire) == Code::kOk) {
        status = comm->communicator->comm_error().status();
      }
      if (!status.ok()) text = status.message();
    }
    return text.c_str();
  } catch (...) {
    return "out of memory";
  }
}

whorlResult_t whorlDeviceSupport(int* supported) {
  return guarded("whorlDeviceSupport", [&]() -> Status {
    if (supported == nullptr) return invalid("whorlDeviceSupport", "supported is NULL");
    std::string problem = why_no_device_support();
    *supported = problem.empty() ? 1 : 0;
    if (*supported == 0) last_error() = std::move(problem);
    return {};
  });
}

} // extern "C"
