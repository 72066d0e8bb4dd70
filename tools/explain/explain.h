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
  bool given = false;       ///< links are; else those of ranks like this process
  std::string dims;         ///< as in WHORL_DIMS; of these
  int hosts = 1;            ///< that these are on
  bool probed = false;      ///< links are those that a communicator has measured
  std::uint64_t digest = 0; ///< see Setup; 0: there is none
  bool measures = false;
  bool json = false;
  int rounds = 7;
  int communicators = 0; ///< more: how much their choices scatter is what is asked for
  bool fresh = false;    ///< each of them in new processes
};

/// A command line that ends the program: what to print, and the exit status.
struct Exit {
  int code;
  std::string text;
};

/// Reads a command line; `exit` is filled in where the program is to end.
std::optional<Arguments> parse(int argc, const char* const* argv, Exit& exit);

/// The algorithms that the shape allows, in the order of the registry; up to 64 ranks only the
/// first of those whose schedules are the same.
std::vector<const Algorithm*> candidates(Collective collective, const Shape& shape);

/// What is known about one size.
struct Row {
  std::size_t bytes = 0;
  std::vector<double> predicted_us; ///< by candidate
  const Algorithm* choice = nullptr;
  std::vector<double> measured_us; ///< medians; empty: not measured
  std::vector<double> spread;      ///< quartiles' distance / median
  double again_us = 0;             ///< the choice in another communicator
  std::vector<Round> rounds;       ///< all of them
  /// How much longer the choice takes than the quickest, as a part; of measured times, those of the
  /// choice in both of its communicators.
  double regret(const std::vector<const Algorithm*>& algorithms) const;
  /// By how much its two times differ, as a part.
  double noise(const std::vector<const Algorithm*>& algorithms) const;
};
/// The predictions; the choices by given costs.
std::vector<Row> predict(const Arguments& arguments);
/// The choices of a communicator whose ranks are like this process, and in `arguments` what they
/// are made from. The error says what is wrong with them or the environment.
Status choose_as_here(Arguments& arguments, std::vector<Row>& rows);

/// Enters the measured times: of the rounds during which the cores stayed as far from each other as
/// they were in most rounds.
void enter(std::vector<Row>& rows, const Measurement& measured);

/// What communicators chose for the collective, and how many chose otherwise than most, for this
/// collective and for all.
std::string scatter_text(const Arguments& arguments, const Scatter& scatter);

/// For a reader, and for programs.
std::string to_text(const Arguments& arguments, const std::vector<Row>& rows);
std::string to_json(const Arguments& arguments, const std::vector<Row>& rows);

} // namespace whorl::explain
