#pragma once

// Collectives with their buffers on a device, checked by the oracle. Link with a driver, see
// device.h.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/device.h"
#include "tests/support/oracle.h"

namespace whorl::test {

/// Case whose buffers are on the calling thread's device. The constructor queues the operation.
class DeviceCase {
 public:
  DeviceCase(const CollectiveCase& c, int rank, int nranks, whorlComm_t comm, CUstream stream);
  /// Waits for the stream. Returns "", or the error of the call or of the result.
  std::string check();

 private:
  std::string name_;
  Buffers buffers_;
  DeviceCopy copy_;
  CUstream stream_;
  std::string error_;
};

/// Runs a case in a stream, with its buffers on the device or on the host, and waits for it.
/// Returns "", or the error.
std::string run_case(const CollectiveCase& c, int rank, int nranks, whorlComm_t comm,
                     CUstream stream, bool on_device = true);

/// Runs every_case() on a device. Returns "", or the error of the first that failed.
std::string run_every_collective(int rank, int nranks, whorlComm_t comm, CUstream stream,
                                 const std::vector<std::size_t>& counts);
/// Returns the number of cases of run_every_collective().
long cases_of_every_collective(const std::vector<std::size_t>& counts);

/// Function of one rank, which returns an error or "".
using DeviceBody =
    std::function<std::string(int rank, whorlComm_t comm, const DeviceQueue& stream)>;

/// Runs `body` for n ranks of this process, each in a thread with a stream of its own; rank r uses
/// device r modulo `devices`.
void run_on_device(int nranks, const DeviceBody& body, int devices = 1);

} // namespace whorl::test
