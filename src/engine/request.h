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

class Feed;

/// A call as the user made it: nothing has been checked.
struct RawCall {
  const char* function = "";
  Collective collective = Collective::kBarrier;
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;
  int type = 1; ///< whorlUint8
  int op = 0;   ///< whorlSum
  int peer = 0; ///< root, or partner
  /// Of a receive from any rank: where to say which.
  bool any_peer = false;
  int* source = nullptr;
};

/// Who gets what in a collective whose blocks have different sizes, as one rank sees it.
struct Blocks {
  struct Block {
    bool used = false;         ///< whether there is a message, of `count` elements or empty
    std::byte* data = nullptr; ///< only read if it is sent
    std::size_t count = 0;
  };
  std::vector<Block> sends, receives; ///< by rank
};

/// The blocks of a collective in which all ranks know all of them: of the input of reduce-scatter,
/// of the output of all-gather.
struct BlockTable {
  std::vector<ChunkMap::Block> blocks; ///< by rank
  std::size_t total = 0, largest = 0;  ///< elements
  bool even = false;                   ///< all have the same number
  std::uint16_t hash = 0;              ///< of the numbers
};

/// As Request::peer of a receive: of whichever rank sends first.
inline constexpr int kAnyRank = -1;

/// One call on a communicator, its arguments already checked.
struct Request {
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  int peer = 0;          ///< root, or partner of send and recv, or kAnyRank
  std::size_t count = 0; ///< elements, of a block where ranks have blocks
  const void* send = nullptr;
  void* recv = nullptr;
  /// Factor of a premultiplied sum: read at `scalar_source` when the operation starts, else the
  /// bytes of `scalar`.
  bool scaled = false;
  const void* scalar_source = nullptr;
  std::array<std::byte, 8> scalar{};
  int* source = nullptr; ///< of a receive from kAnyRank: where to say which
  /// At most one of the two is not null. With blocks `count`, `send` and `recv` are not used; with
  /// a table `count` is only if it is even.
  std::shared_ptr<const Blocks> blocks;
  std::shared_ptr<const BlockTable> table;
  /// If not null, brings the data of `send` and takes that of `recv`, which the host cannot reach.
  std::shared_ptr<Feed> feed;

  bool point_to_point() const noexcept {
    return collective == Collective::kSend || collective == Collective::kRecv;
  }
};

/// Bytes of the input and output buffers of `request` on `rank`; 0 where the buffer is not used. Of
/// an output with a table, the elements that are written.
std::size_t input_bytes(const Request& request, int rank, int nranks) noexcept;
std::size_t output_bytes(const Request& request, int rank, int nranks) noexcept;

/// What the messages of a request say of it: its number, and a hash of its plan.
Fingerprint fingerprint_of(const Request& request, std::uint32_t sequence, std::uint16_t plan);

/// "allreduce of 1024 float32 (sum)", "broadcast of 8 int64 from root 2", "send of 4 int8 to rank
/// 1".
std::string describe(const Request& request);
/// The same for what a message says about its operation, with the number: "allreduce number 7 of
/// …".
std::string describe(const Fingerprint& fingerprint);
/// The names and values of the fields in which the two differ: "datatype (float32 here, int32
/// there)".
std::string difference(const Fingerprint& here, const Fingerprint& there);

} // namespace whorl
