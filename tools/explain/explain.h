#pragma once

#include <optional>
#include <string>
#include <vector>

#include "algorithms/least_time.h"
#include "base/status.h"
#include "tools/explain/measure.h"

namespace whorl::explain {

/// Checked arguments of the command line.
struct Arguments {
  Collective collective = Collective::kAllReduce;
  Shape shape;
  std::vector<std::size_t> sizes; ///< sizes in bytes, ascending
  LinkCosts links;
  bool given = false;        ///< true: links are given; otherwise those of ranks like this process
  std::string dims;          ///< dimensions, in the form of WHORL_DIMS
  std::vector<int> hosts{1}; ///< number of hosts, or numbers of ranks of each
  bool one_machine = false;  ///< true: the hosts are parts of one machine
  bool probed = false;       ///< true: a communicator has measured the links
  std::uint64_t digest = 0;  ///< digest of choices, see Setup; 0: none
  std::string about;         ///< words for where the ranks are, and digests; empty: unknown
  bool measures = false;
  bool json = false;
  int rounds = 7;
  int communicators = 0; ///< number of communicators whose choices to compare
  bool fresh = false;    ///< true: each communicator is made in new processes
};

/// Text to print and exit status of a command line that ends the program.
struct Exit {
  int code;
  std::string text;
};

/// Parses a command line. Returns nothing, and sets `exit`, if the program is to end.
std::optional<Arguments> parse(int argc, const char* const* argv, Exit& exit);

/// Returns the algorithms that support the shape, in the order of the registry; up to 64 ranks only
/// the first of those with equal schedules.
std::vector<const Algorithm*> candidates(Collective collective, const Shape& shape);

/// Predictions, choice and measurements of one size.
struct Row {
  std::size_t bytes = 0;
  std::vector<Prediction> predicted; ///< predictions by candidate
  LeastTime least;                   ///< time that no algorithm can beat
  const Algorithm* choice = nullptr;
  std::vector<double> measured_us; ///< medians by candidate; empty: not measured
  std::vector<double> spread;      ///< distance of the quartiles / median
  double again_us = 0;             ///< median of the choice in another communicator
  std::vector<Round> rounds;       ///< all rounds
  /// Returns by which fraction the choice takes longer than the quickest candidate, by measured
  /// times; that of the choice is the mean of both of its communicators.
  double regret(const std::vector<const Algorithm*>& algorithms) const;
  /// Returns which part of the choice's time, measured or else predicted, no algorithm can avoid.
  double of_bound(const std::vector<const Algorithm*>& algorithms) const;
  /// Returns by which fraction the times of the choice in its two communicators differ.
  double noise(const std::vector<const Algorithm*>& algorithms) const;
};
/// Predicts the times by `arguments.links`, and chooses by these.
std::vector<Row> predict(const Arguments& arguments);
/// Predicts and chooses as a communicator would whose ranks are like this process, and sets shape,
/// links and digest in `arguments`. The error says what is wrong with the arguments or the
/// environment.
Status choose_as_here(Arguments& arguments, std::vector<Row>& rows);

/// Enters the measured times, only of the rounds with the most frequent distance between the cores,
/// before and after.
void enter(std::vector<Row>& rows, const Measurement& measured);

/// Describes what communicators chose for the collective, and the part of choices that differ from
/// those of most communicators, for all collectives.
std::string scatter_text(const Arguments& arguments, const Scatter& scatter);

/// Formats the rows, for readers as text and for programs as JSON.
std::string to_text(const Arguments& arguments, const std::vector<Row>& rows);
std::string to_json(const Arguments& arguments, const std::vector<Row>& rows);

} // namespace whorl::explain
