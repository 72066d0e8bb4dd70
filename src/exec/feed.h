#pragma once

#include <cstddef>

#include "base/status.h"
#include "base/wait.h"
#include "exec/chunk_map.h"

namespace whorl {

/// Brings the data of one operation in pieces, because it lies where the host cannot reach it, and
/// takes the results away. A piece is some consecutive windows and is executed as an operation is,
/// to its end, before the next one. So the messages of a rank are the same, and in the same order,
/// as without a feed: the other ranks need not know. Used by one thread at a time.
class Feed {
 public:
  struct Piece {
    ChunkMap map;                 ///< of its windows alone; its blocks are valid until finish()
    std::size_t first_window = 0; ///< of the operation, that is the first of the piece
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
  };
  virtual ~Feed() = default;

  /// Begins an operation that is cut by `whole`. An error is that of the first next().
  virtual void begin(const ChunkMap& whole) noexcept = 0;
  /// The next piece: kAdvanced if there is one and its input is there, kIdle if it is still on its
  /// way, kDone after the last one, kFailed with error().
  virtual Progress next(Piece& piece) noexcept = 0;
  /// Takes the results of the piece at hand away.
  virtual void finish() noexcept = 0;
  virtual Status error() const = 0;
};

} // namespace whorl
