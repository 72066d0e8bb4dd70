#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fingerprint.h"
#include "base/types.h"
#include "exec/chunk_map.h"

namespace whorl {

class StagingPipeline;

/// Arguments of a call as the user gave them, unchecked.
struct RawCall {
  const char* function = "";
  Collective collective = Collective::kBarrier;
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;
  int type = 1; ///< whorlUint8
  int op = 0;   ///< whorlSum
  int peer = 0; ///< root, or partner
  /// Whether a receive is from any rank; then `*source` gets the sender's rank.
  bool any_peer = false;
  int* source = nullptr;
};

/// Blocks that one rank sends and receives in a collective whose blocks have different sizes.
struct Blocks {
  struct Block {
    bool used = false;         ///< whether there is a message, of `count` elements or empty
    std::byte* data = nullptr; ///< address of the block; only read if it is sent
    std::size_t count = 0;
  };
  std::vector<Block> sends, receives; ///< blocks by rank
};

/// Blocks of a collective in which all ranks know all of them: of the input of reduce-scatter, of
/// the output of all-gather.
struct BlockTable {
  std::vector<ChunkMap::Block> blocks; ///< blocks by rank
  std::size_t total = 0, largest = 0;  ///< numbers of elements
  bool even = false;                   ///< whether all blocks have the same number of elements
  bool packed = false;                 ///< whether each block begins where the one before ends
  std::uint16_t hash = 0;              ///< hash of the numbers of elements
};

/// Value of Request::peer of a receive from whichever rank sends first.
inline constexpr int kAnyRank = -1;

/// One call on a communicator, its arguments already checked.
struct Request {
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  int peer = 0;          ///< root, or partner of send and recv, or kAnyRank
  std::size_t count = 0; ///< number of elements, of a block where ranks have blocks
  const void* send = nullptr;
  void* recv = nullptr;
  /// Factor of a premultiplied sum: read at `scalar_source` when the operation starts, or, if that
  /// is null, the bytes of `scalar`.
  bool scaled = false;
  const void* scalar_source = nullptr;
  std::array<std::byte, 8> scalar{};
  int* source = nullptr; ///< address that gets the sender's rank in a receive from kAnyRank
  /// Blocks and table of which at most one is not null. With blocks `count`, `send` and `recv` are
  /// not used; with a table `count` is only used if it is even.
  std::shared_ptr<const Blocks> blocks;
  std::shared_ptr<const BlockTable> table;
  /// Pipeline that brings the data of `send` and takes that of `recv`, which the host cannot reach,
  /// or null.
  std::shared_ptr<StagingPipeline> pipeline;

  bool point_to_point() const noexcept {
    return collective == Collective::kSend || collective == Collective::kRecv;
  }
};

/// Returns the bytes of the input, or output, buffer of `request` on `rank`; 0 if the buffer is not
/// used. Of an output with a table only the written elements count.
std::size_t input_bytes(const Request& request, int rank, int nranks) noexcept;
std::size_t output_bytes(const Request& request, int rank, int nranks) noexcept;

/// Returns the fingerprint that the messages of a request carry: with its number, and a hash of its
/// plan.
Fingerprint fingerprint_of(const Request& request, std::uint32_t sequence, std::uint16_t plan);

/// Returns "allreduce of 1024 float32 (sum)", "broadcast of 8 int64 from root 2", "send of 4 int8
/// to rank 1", "gatherv of int32, root 0".
std::string describe(const Request& request);

/// A rank and its call, in words and as messages have it.
struct CallOfRank {
  std::string rank, call;
  Fingerprint fingerprint;
};
/// Describes two ranks' calls that differ, in a sentence for an error.
std::string describe_disagreement(const CallOfRank& here, const CallOfRank& there);

} // namespace whorl
