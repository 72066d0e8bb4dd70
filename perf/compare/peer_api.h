#pragma once

// Helpers of files that implement the C API, as far as the perf programs call it, on another
// library. The perf programs, linked with such a file in place of libwhorl, measure the other
// library with the same loops, data and verification: perf/compare/meson.build makes
// `openmpi_all_reduce_perf` and its like.
//
// One communicator, one thread, one rank per process, started by a launcher that
// perf/common/launch.h recognises. Functions that the programs call but do not need (registration,
// streams) are in peer_api.cc.

#include <exception>
#include <string>

#include "whorl/whorl.h"

namespace peer {

/// Returns the sentence that whorlGetLastError() shows, for writing.
std::string& last_error();

/// Records a sentence and returns whorlInvalidUsage.
whorlResult_t refuse(const std::string& sentence);

/// Returns the bytes of an element.
std::size_t size_of(whorlDataType_t type);

/// Calls `body`, and turns an exception into a result.
template <class Body>
whorlResult_t guarded(Body&& body) {
  try {
    body();
    return whorlSuccess;
  } catch (const std::exception& error) {
    last_error() = error.what();
    return whorlSystemError;
  }
}

} // namespace peer
