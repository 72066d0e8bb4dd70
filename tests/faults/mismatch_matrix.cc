#include "tests/faults/mismatch_matrix.h"

#include <fmt/core.h>

#include <array>

#include "tests/faults/known_flaws.h"
#include "tests/faults/mismatch_case.h"

namespace whorl::test {
namespace {

using Field = MismatchCase::Field;

constexpr std::array<std::string_view, 6> kFields{"count", "dtype", "op", "root", "order", "kind"};

struct Size {
  const char* name;
  std::size_t bytes;
};
constexpr std::array kSizes{Size{"0", 0}, Size{"1", sizeof(float)}, Size{"1k", 1 << 10},
                            Size{"256k", 256 << 10}, Size{"16M", 16 << 20}};
constexpr std::array kOdd{0, kMismatchRanks - 1};

/// Returns whether an operation has the field.
bool has(const Operation& operation, Field field) {
  if (field == Field::kCount || field == Field::kType) return operation.counts;
  if (field == Field::kOperator) return operation.reduces;
  return field != Field::kRoot || operation.rooted;
}

} // namespace

MismatchMatrix::MismatchMatrix() {
  std::size_t set = 0;
  for (const char* const transport : {"shm", "tcp"}) {
    for (const Operation& operation : operations()) {
      for (const Size& size : kSizes) {
        if (!operation.counts && size.bytes != 0) continue;
        for (std::size_t field = 0; field < kFields.size(); ++field) {
          if (!has(operation, static_cast<Field>(field))) continue;
          for (const int odd : kOdd) {
            cases_.push_back({.operation = &operation,
                              .field = static_cast<Field>(field),
                              .transport = transport,
                              .bytes = size.bytes,
                              .odd = odd});
            names_.push_back(fmt::format("mismatch/{}/{}/{}/{}/rank{}", transport, operation.name,
                                         size.name, kFields[field], odd));
            sets_.push_back(set);
          }
        }
        ++set;
      }
    }
  }
}

std::string_view MismatchMatrix::measure() const {
  return "Time: from the calls to the last rank's error.";
}

void MismatchMatrix::run(std::span<const std::size_t> cells, CellResult* results) const {
  std::vector<MismatchCase> chosen;
  for (const std::size_t cell : cells) chosen.push_back(cases_[cell]);
  const std::vector<MismatchOutcome> outcomes = run_mismatches(chosen);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const std::string surprise = compare_with_known(names_[cells[i]], outcomes[i].flaws);
    std::string wrong = outcomes[i].wrong + surprise;
    if (!surprise.empty()) wrong += outcomes[i].texts;
    results[cells[i]].set(wrong, outcomes[i].ms);
  }
}

} // namespace whorl::test
