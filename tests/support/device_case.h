#pragma once

// Collectives with their buffers on a device, checked by the oracle. Linked with a driver, see
// device.h.

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "tests/support/device.h"
#include "tests/support/oracle.h"

namespace whorl::test {

/// A case whose buffers are on the device of the calling thread. It is queued when this is made.
class DeviceCase {
 public:
  DeviceCase(const CollectiveCase& c, int rank, int nranks, whorlComm_t comm, CUstream stream);
  /// Waits for the stream. Empty, or what was wrong with the call or with the result.
  std::string check();

 private:
  std::string name_;
  Buffers buffers_;
  DeviceCopy copy_;
  CUstream stream_;
  std::string error_;
};

/// Runs a case in a stream, with its buffers on the device or on the host, and waits for it. Empty,
/// or what was wrong.
std::string run_case(const CollectiveCase& c, int rank, int nranks, whorlComm_t comm,
                     CUstream stream, bool on_device = true);

/// All kinds of collective, in place and not, with each of the counts, on a device. Empty, or what
/// was wrong with the first that failed.
std::string run_every_collective(int rank, int nranks, whorlComm_t comm, CUstream stream,
                                 std::span<const std::size_t> counts);
/// How many cases that are.
long cases_of_every_collective(std::span<const std::size_t> counts);

/// What one rank does; returns what is wrong, or nothing.
using DeviceBody =
    std::function<std::string(int rank, whorlComm_t comm, const DeviceQueue& stream)>;

/// Runs `body` for n ranks of this process, each in a thread with a stream of its own; those of
/// rank r are on device r modulo `devices`.
void run_on_device(int nranks, const DeviceBody& body, int devices = 1);

} // namespace whorl::test
