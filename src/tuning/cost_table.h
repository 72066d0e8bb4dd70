#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/cost_model.h"
#include "base/status.h"

namespace whorl {

/// Costs by what ranks have in common, before the levels of a communicator are known.
struct CostTable {
  LinkCosts common;                    ///< costs other than those of levels
  std::array<Level, kScopes> scopes{}; ///< costs by Scope; a boundary is that of the part itself
};

/// Costs of levels that a user gives, as JSON:
///
///     {"host": {"boundary_gb_per_s": 12.5}, "network": {"alpha_us": 9, "beta_us_per_kib": 0.1}}
///
/// The keys are names of scopes; in each, those of Link and `boundary_gb_per_s`, all optional.
class CostFile {
 public:
  /// Reads the text of a file. The error names the file, the key and what is wrong with it.
  static Result<CostFile> parse(std::string_view text, const std::string& name);
  /// Replaces the costs of a level that the file gives for the level's scope.
  void apply(Level& level) const;

 private:
  struct Entry {
    Scope scope;
    double Link::*cost = nullptr; ///< cost to replace; null: that of the boundary
    double value = 0;
  };
  std::vector<Entry> entries_;
};

/// Converts a rate into the time of a KiB, and back; 0 stands for unknown in both.
constexpr double us_per_kib(double gb_per_s) { return gb_per_s > 0 ? 1.024 / gb_per_s : 0; }
constexpr double gb_per_s(double us_per_kib) { return us_per_kib > 0 ? 1.024 / us_per_kib : 0; }

} // namespace whorl
