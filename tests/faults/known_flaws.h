#pragma once

#include <cstdint>
#include <string>

namespace whorl::test {

/// Ways in which ranks learn of a fault later, or less cleanly, than the rule. Of a mismatch: by an
/// error of that very call, long before the deadline, with all buffers untouched. Of a rank that is
/// stopped: by an error at the deadline that names this rank.
enum Flaw : std::uint8_t {
  kNextCall = 1,   ///< a rank gets the error only from one of its next two calls
  kDeadline = 2,   ///< a rank gets the error only at the deadline
  kTouched = 4,    ///< a rank's receive buffer has been written to
  kNoError = 8,    ///< a rank gets no error, nor from its next two calls
  kUnnamed = 16,   ///< a rank's error does not name both calls and the field
  kNeighbour = 32, ///< an error at the deadline names a rank that waits itself, or none
};

/// Flaws that a cell is known to have.
struct KnownFlaws {
  std::uint8_t mostly = 0;    ///< flaws that it has, unless an error of another rank comes first
  std::uint8_t sometimes = 0; ///< flaws that depend on which rank is first
  /// Flaws that a busy machine brings about: a cell that has one runs again, and must not have it
  /// then.
  std::uint8_t rarely = 0;
};

/// Returns the known flaws of a cell, from the one table of these.
KnownFlaws known_flaws(const std::string& cell);
/// Compares the flaws of a cell with the known ones. Returns the difference in words, or "".
std::string compare_with_known(const std::string& cell, std::uint8_t flaws);
/// Returns the flaws as words.
std::string describe_flaws(std::uint8_t flaws);

} // namespace whorl::test
