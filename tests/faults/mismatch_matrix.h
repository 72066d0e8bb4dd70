#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/faults/matrix.h"
#include "tests/support/operations.h"

namespace whorl::test {

/// One rank whose call differs in one field from the calls of all others.
struct MismatchCase {
  enum class Field : std::uint8_t {
    kCount,
    kType,
    kOperator,
    kRoot,
    kOrder, ///< the rank makes two calls in the other order
    kKind,  ///< the rank calls another collective
  };
  const Operation* operation = nullptr;
  Field field = Field::kCount;
  std::string transport;
  std::size_t bytes = 0; ///< size of each rank's block
  int odd = 0;           ///< the rank that differs
};

/// Every field × operation × transport × size × rank: all ranks get an error that names both calls,
/// at once and with their buffers untouched, or what known_flaws() says.
class MismatchMatrix final : public Matrix {
 public:
  MismatchMatrix();
  std::string_view name() const override { return "mismatch"; }
  std::string_view measure() const override;
  const std::vector<std::string>& cells() const override { return names_; }
  std::size_t set_of(std::size_t cell) const override { return sets_[cell]; }
  void run(std::span<const std::size_t> cells, CellResult* results) const override;

 private:
  std::vector<MismatchCase> cases_;
  std::vector<std::string> names_;
  std::vector<std::size_t> sets_;
};

} // namespace whorl::test
