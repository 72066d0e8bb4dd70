#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/faults/matrix.h"
#include "tests/support/operations.h"

namespace whorl::test {

/// Way in which a rank fails.
enum class Failure : std::uint8_t {
  kKill,  ///< SIGKILL
  kStop,  ///< SIGSTOP
  kExit,  ///< exit() by another thread than that of the operation
  kAbort, ///< whorlCommAbort() by another thread than that of the operation
};

/// A rank that fails while all ranks carry out one operation again and again.
struct KillCase {
  const Operation* operation = nullptr;
  std::string algorithm; ///< value of WHORL_ALGO; empty: the operation has none to choose from
  std::string transport;
  Failure failure = Failure::kKill;
  int message = 0; ///< number of the rank's message at which it fails; kBefore, kAfter
  int victim = 0;

  static constexpr int kBefore = 0; ///< before the rank's first call
  static constexpr int kAfter = -1; ///< after its first call
};

/// Every failure × point × operation and algorithm × transport × victim: the others get an error
/// that names this rank alone, and nothing is left behind.
class KillMatrix final : public Matrix {
 public:
  KillMatrix();
  std::string_view name() const override { return "kill"; }
  std::string_view measure() const override;
  const std::vector<std::string>& cells() const override { return names_; }
  std::size_t set_of(std::size_t cell) const override { return cell; }
  void run(std::span<const std::size_t> cells, CellResult* results) const override;

 private:
  std::vector<KillCase> cases_;
  std::vector<std::string> names_;
};

} // namespace whorl::test
