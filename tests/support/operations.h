#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "whorl/whorl.h"

namespace whorl::test {

/// Arguments of one call, apart from the buffers.
struct Arguments {
  std::size_t count = 0; ///< elements of a rank's block; where blocks differ, of the smallest
  whorlDataType_t type = whorlFloat32;
  whorlRedOp_t op = whorlSum;
  int root = 0;
  int distance = 1; ///< number of ranks from a sender to its receiver
  /// Way in which blocks differ, where they do: each by its rank modulo this number; 0: only that
  /// of the last rank, which is larger by one element.
  std::size_t cycle = 0;
};

/// Rank that makes a call, and its buffers of buffer_bytes().
struct Caller {
  int rank = 0, nranks = 1;
  std::byte* send = nullptr;
  std::byte* recv = nullptr;
  whorlComm_t comm = nullptr;
};

/// Elements in the block of each rank.
using Blocks = std::vector<std::size_t>;

/// Operation that all ranks carry out together, by one call or one group of calls on each.
struct Operation {
  std::string_view name;   ///< name in WHORL_ALGO, if it has algorithms
  std::string_view called; ///< pattern of the name in errors
  bool uneven = false;     ///< whether the blocks of ranks differ in size
  bool counts = true;      ///< whether the number of elements and the datatype matter
  bool reduces = false;    ///< whether the operator matters
  bool rooted = false;     ///< whether the root matters
  whorlResult_t (*call)(const Arguments&, const Caller&) = nullptr;
  /// Returns what the caller's rank has after the call with the sum, where element i that rank r
  /// sends is element(r, i); nullptr if that is not always the same.
  std::vector<std::int32_t> (*result)(const Blocks&, const Arguments&, const Caller&) = nullptr;
};

/// Returns a number that differs between ranks and elements, of which a thousand ranks have a sum.
constexpr std::int32_t element(int rank, std::size_t index) {
  return rank * 1021 + static_cast<std::int32_t>(index);
}

/// Returns every collective, the collectives with blocks of different sizes, and transfers.
std::span<const Operation> operations();
/// Returns the operation of that name.
const Operation& operation(std::string_view name);
/// Returns the blocks of the operation, which differ by as much as two elements if they do.
Blocks blocks_of(const Operation& operation, const Arguments& arguments, int nranks);
/// Returns the bytes that each buffer of a caller needs.
std::size_t buffer_bytes(const Arguments& arguments, int nranks);

} // namespace whorl::test
