#pragma once

// Another library behind the functions of the C API that the perf programs call. Those programs,
// linked with such a file in place of libwhorl, measure the other library with the same loops, data
// and verification: perf/compare/meson.build makes `openmpi_all_reduce_perf` and its like.
//
// One communicator, one thread, one rank per process, started by a launcher that
// perf/common/launch.h recognises. What the programs call without need (registration, streams) is
// in peer_api.cc.

#include <exception>
#include <string>

#include "whorl/whorl.h"

namespace peer {

/// What whorlGetLastError() shows.
std::string& last_error();

/// Records a sentence and returns whorlInvalidUsage.
whorlResult_t refuse(const std::string& sentence);

/// Bytes of an element.
std::size_t size_of(whorlDataType_t type);

/// Calls `body`, and makes a result of an exception.
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
