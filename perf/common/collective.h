#pragma once

#include <cstddef>
#include <vector>

#include "perf/common/api.h"

namespace perf {

/// Where a rank stands in one operation.
struct Place {
  int rank;
  int nranks;
  int root;
  int skew = 0; ///< see BlockSizes
};

/// Buffer sizes of one rank, in elements, and how both sides lie in one buffer in place.
struct Geometry {
  std::size_t send_count;
  std::size_t recv_count;
  std::size_t send_offset = 0; ///< in place: first element of the send side
  std::size_t recv_offset = 0; ///< in place: first element of the receive side
};

/// A part of a rank's receive side and where its elements come from.
struct Segment {
  static constexpr int kReduced = -1; ///< the reduction of all ranks' inputs
  std::size_t offset;                 ///< in the receive side
  std::size_t count;
  int source;                ///< a rank, or kReduced
  std::size_t source_offset; ///< in the source's send side
};

/// The arguments of one operation on one rank.
struct Call {
  const void* send;
  void* recv;
  std::size_t count;
  DataType type;
  RedOp op;
  Place place;
  Comm comm;
  void* stream;
};

/// One collective, described to the driver that measures any of them.
struct Collective {
  const char* name;    ///< of the program: "all_reduce_perf"
  bool reduces;        ///< takes an operator
  bool has_root;       ///< takes a root
  bool in_place;       ///< can work in place
  bool needs_group;    ///< one operation is several calls that belong together
  bool blocks_by_rank; ///< the larger side has one block of `count` elements for each rank
  Geometry (*geometry)(std::size_t count, const Place& place);
  /// Receive-side elements outside all segments stay as they were.
  std::vector<Segment> (*expected)(std::size_t count, const Place& place);
  Result (*run)(const Call& call);
  double (*bus_factor)(int nranks); ///< busbw / algbw
  bool moves_data = true;           ///< false: there are no sizes, one row is measured
  bool uneven = false;              ///< blocks may differ in size
};

/// Measures a collective as the command line says; the body of main().
int run_program(const Collective& collective, int argc, const char* const* argv);

/// @name Factors shared by programs
/// @{
inline double factor_one(int) { return 1; }
inline double factor_others(int nranks) { return static_cast<double>(nranks - 1) / nranks; }
inline double factor_twice_others(int nranks) { return 2 * factor_others(nranks); }
/// @}

/// One segment for each rank r of `place`: `count` elements at r·count, from element
/// `source_offset` of rank r.
std::vector<Segment> block_from_each(std::size_t count, const Place& place,
                                     std::size_t source_offset);

} // namespace perf
