#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "simulation/arena.h"
#include "simulation/view.h"

namespace whorl::simulation {

/// Two plain accesses to the same bytes, at least one of which writes, and neither of which
/// happened before the other.
struct Race {
  std::size_t offset; ///< offset in the arena
  std::size_t other;  ///< fibre whose access came first
  bool other_writes;
};

/// Detector of data races: remembers the last write of each word of the arena, and the last read by
/// each fibre. A word has 8 bytes, so different fibres must not use parts of one. A read that finds
/// no race has found the bytes that the program means; a write that finds none overwrites nothing
/// that a fibre still reads.
class RaceDetector {
 public:
  RaceDetector();
  void clear();
  /// Records an access, and returns the first race with an earlier one.
  std::optional<Race> read(std::size_t fibre, const View& view, std::size_t offset,
                           std::size_t bytes);
  std::optional<Race> write(std::size_t fibre, const View& view, std::size_t offset,
                            std::size_t bytes);

 private:
  static constexpr std::size_t kWordBytes = 8;
  static constexpr std::size_t kPageWords = Arena::kPageBytes / kWordBytes;
  struct Word {
    std::uint32_t written = 0; ///< phase of the last write; 0: none
    std::uint32_t writer = 0;
    std::array<std::uint32_t, kMaxFibres> read{}; ///< phase of the last read of each fibre
  };
  using Page = std::array<Word, kPageWords>;

  Word& word(std::size_t index);

  std::vector<std::unique_ptr<Page>> pages_; ///< by number of the page; null: never used
  std::vector<std::size_t> used_;            ///< pages that this run uses
  std::vector<bool> in_use_;
};

} // namespace whorl::simulation
