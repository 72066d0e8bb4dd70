#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/explain/measure.h"

namespace whorl::explain {

/// The command line, checked.
struct Arguments {
  Collective collective = Collective::kAllReduce;
  Shape shape;
  std::vector<std::size_t> sizes; ///< ascending
  LinkCosts links;
  bool measures = false;
  bool json = false;
  int rounds = 7;
};

/// A command line that ends the program: what to print, and the exit status.
struct Exit {
  int code;
  std::string text;
};

/// Reads a command line; `exit` is filled in where the program is to end.
std::optional<Arguments> parse(int argc, const char* const* argv, Exit& exit);

/// The algorithms that the shape allows, in the order of the registry.
std::vector<const Algorithm*> candidates(Collective collective, const Shape& shape);

/// What is known about one size.
struct Row {
  std::size_t bytes = 0;
  std::vector<double> predicted_us; ///< by candidate
  const Algorithm* choice = nullptr;
  std::vector<double> measured_us; ///< empty: not measured
  std::vector<double> spread;
  double again_us = 0; ///< the choice, measured once more
  /// How much longer the choice takes than the quickest, as a part; of measured times.
  double regret(const std::vector<const Algorithm*>& algorithms) const;
};
std::vector<Row> predict(const Arguments& arguments);

/// For a reader, and for programs.
std::string to_text(const Arguments& arguments, const std::vector<Row>& rows);
std::string to_json(const Arguments& arguments, const std::vector<Row>& rows);

} // namespace whorl::explain
