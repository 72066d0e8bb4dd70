#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "whorl/whorl.h"

namespace whorl::test {

/// Arguments of one call, apart from the buffers.
struct Arguments {
  std::size_t count = 0; ///< elements of a rank's block
  whorlDataType_t type = whorlFloat32;
  whorlRedOp_t op = whorlSum;
  int root = 0;
};

/// Rank that makes a call, and its buffers of buffer_bytes().
struct Caller {
  int rank = 0, nranks = 1;
  std::byte* send = nullptr;
  std::byte* recv = nullptr;
  whorlComm_t comm = nullptr;
};

/// Operation that all ranks carry out together, by one call or one group of calls on each.
struct Operation {
  std::string_view name;   ///< name in WHORL_ALGO, if it has algorithms
  std::string_view called; ///< how errors name it
  bool counts = true;      ///< whether the number of elements and the datatype matter
  bool reduces = false;    ///< whether the operator matters
  bool rooted = false;     ///< whether the root matters
  whorlResult_t (*call)(const Arguments&, const Caller&) = nullptr;
};

/// Returns every collective, the collectives with blocks of different sizes, and transfers.
std::span<const Operation> operations();
/// Returns the operation of that name.
const Operation& operation(std::string_view name);
/// Returns the bytes that each buffer of a caller needs.
std::size_t buffer_bytes(const Arguments& arguments, int nranks);

} // namespace whorl::test
