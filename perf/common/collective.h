#pragma once

#include <cstddef>
#include <vector>

#include "perf/common/api.h"

namespace perf {

/// Position of a rank in one operation.
struct Place {
  int rank;
  int nranks;
  int root;
  int skew = 0; ///< skew of the block sizes in percent, see BlockSizes
};

/// Buffer sizes of one rank, in elements, and offsets of both sides where they share one buffer (in
/// place).
struct Geometry {
  std::size_t send_count;
  std::size_t recv_count;
  std::size_t send_offset = 0; ///< first element of the send side in place
  std::size_t recv_offset = 0; ///< first element of the receive side in place
};

/// Part of a rank's receive side, and the origin of its elements.
struct Segment {
  static constexpr int kReduced = -1; ///< value of `source` for the reduction of all ranks' inputs
  std::size_t offset;                 ///< offset in the receive side
  std::size_t count;
  int source;                ///< rank, or kReduced
  std::size_t source_offset; ///< offset in the source's send side
};

/// The arguments of one operation on one rank.
struct CollectiveCall {
  const void* send;
  void* recv;
  std::size_t count;
  DataType type;
  RedOp op;
  Place place;
  Comm comm;
  void* stream;
};

/// Description of one collective for the driver, which measures any of them.
struct Collective {
  const char* name;         ///< name of the program: "all_reduce_perf"
  bool reduces = false;     ///< true if it takes an operator
  bool has_root = false;    ///< true if it takes a root
  bool in_place = false;    ///< true if it can work in place
  bool needs_group = false; ///< true if one operation consists of several calls in a group
  /// Whether the larger side has one block of `count` elements for each rank.
  bool blocks_by_rank = false;
  Geometry (*geometry)(std::size_t count, const Place& place);
  /// Returns the segments of a rank's receive side; elements outside all segments stay unchanged.
  std::vector<Segment> (*expected)(std::size_t count, const Place& place);
  Result (*run)(const CollectiveCall& call);
  double (*bus_factor)(int nranks); ///< function that returns busbw / algbw
  bool moves_data = true;           ///< whether sizes are measured; otherwise one row
  bool uneven = false;              ///< whether blocks may differ in size
  int only_ranks = 0; ///< number of ranks that there must be, each in a thread of its own; 0: any
  int trips = 1; ///< number of messages in one operation that follow one another; times are of one
};

/// Measures a collective as the command line says, and returns the exit status; the body of main().
int run_program(const Collective& collective, int argc, const char* const* argv);

/// @name Parts shared by programs
/// @{
/// Returns sides of `count` elements each.
inline Geometry equal_sides(std::size_t count, const Place&) { return {count, count}; }
inline double factor_one(int) { return 1; }
inline double factor_others(int nranks) { return static_cast<double>(nranks - 1) / nranks; }
inline double factor_twice_others(int nranks) { return 2 * factor_others(nranks); }
/// @}

/// Returns one segment for each rank r of `place`: `count` elements at r·count, from element
/// `source_offset` of rank r.
std::vector<Segment> block_from_each(std::size_t count, const Place& place,
                                     std::size_t source_offset);

} // namespace perf
