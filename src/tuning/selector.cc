#include "tuning/selector.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <map>

#include "base/collective_name.h"
#include "base/printable.h"

namespace whorl {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::size_t size_class(std::size_t bytes) noexcept {
  return std::min<std::size_t>(bytes <= 1 ? 0 : static_cast<std::size_t>(std::bit_width(bytes - 1)),
                               Selector::kClasses - 1);
}

/// Lists the algorithms of a collective; with a shape only those that support the shape.
std::string algorithm_names(Collective collective, const Shape* shape = nullptr) {
  std::vector<std::string_view> names;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective != collective) continue;
    if (shape == nullptr || algorithm.supports(*shape)) names.push_back(algorithm.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Algorithm that the user has chosen for its collective.
struct Override {
  const Algorithm* algorithm;
  bool names_collective; ///< whether the user has named the collective, not only the algorithm
};

/// Reads the overrides, of which the last one for a collective counts.
Result<std::vector<Override>> parse_overrides(std::string_view text) {
  std::vector<Override> overrides;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t colon = part.find(':');
    const bool names_collective = colon != std::string_view::npos;
    const std::string_view name = names_collective ? part.substr(colon + 1) : part;
    bool known = false;
    for (int c = 0; c < kNumCollectives; ++c) {
      const auto collective = static_cast<Collective>(c);
      if (names_collective && find_collective(part.substr(0, colon)) != collective) continue;
      const Algorithm* const algorithm = find_algorithm(collective, name);
      if (algorithm == nullptr) {
        if (!names_collective) continue; // one name for all: where it exists
        return Status::error(
            Code::kInvalidUsage,
            fmt::format("WHORL_ALGO: there is no algorithm \"{}\" for {}; there are {}",
                        printable(name), name_of(collective), algorithm_names(collective)));
      }
      known = true;
      overrides.push_back({algorithm, names_collective});
    }
    if (!known) {
      return Status::error(Code::kInvalidUsage,
                           fmt::format("WHORL_ALGO: \"{}\" is neither an algorithm nor "
                                       "collective:algorithm; allreduce has {}",
                                       printable(part), algorithm_names(Collective::kAllReduce)));
    }
  }
  return overrides;
}

/// Says why an algorithm that the user has chosen cannot be used, and what can.
Status misfit(const Algorithm& algorithm, const Shape& shape) {
  std::string where =
      fmt::format("with {} channel{}", shape.channels, shape.channels == 1 ? "" : "s");
  std::string remedy = "leave it out";
  if (algorithm.name == "hierarchical" || algorithm.name == "leaders") {
    const std::string dims =
        shape.dims.empty() ? std::to_string(shape.nranks) : format_dims(shape.dims);
    where = shape.groups.empty() ? fmt::format("in the dimensions \"{}\"", dims)
                                 : fmt::format("in groups of {}", fmt::join(shape.groups, ", "));
    remedy += ", give WHORL_DIMS two or more sizes above 1 without algorithms";
  }
  const std::string names = algorithm_names(algorithm.collective, &shape);
  if (!names.empty()) remedy += ", or choose one of " + names;
  return Status::error(
      Code::kInvalidUsage,
      fmt::format("WHORL_ALGO: {} of {} does not support {} ranks {}; {}", algorithm.name,
                  name_of(algorithm.collective), shape.nranks, where, remedy));
}

/// Returns the overrides that support the shape, as collective → algorithm. An error names one that
/// does not, if the user has chosen it for its collective.
Result<std::map<Collective, const Algorithm*>> choose_overrides(const Shape& shape,
                                                                std::string_view text) {
  const auto overrides = parse_overrides(text);
  if (!overrides.ok()) return overrides.status();
  std::map<Collective, const Algorithm*> chosen;
  for (const auto& [algorithm, names_collective] : *overrides) {
    if (algorithm->supports(shape)) {
      chosen[algorithm->collective] = algorithm;
    } else if (names_collective) {
      return misfit(*algorithm, shape);
    }
  }
  return chosen;
}

} // namespace

Result<Selector> Selector::make(const Shape& shape, const LinkCosts& links,
                                std::string_view overrides) {
  const auto chosen = choose_overrides(shape, overrides);
  if (!chosen.ok()) return chosen.status();
  Selector selector;
  const Shape pair{.nranks = 2};
  const auto all = all_algorithms();
  for (int c = 0; c < kNumCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    // A transfer has two ranks, however many the communicator has.
    const bool transfer = collective == Collective::kSend || collective == Collective::kRecv;
    const Shape& ranks = transfer ? pair : shape;
    const auto forced = chosen->find(collective);
    const bool free = forced == chosen->end();
    const auto candidates = free ? predictors(collective, ranks, links) : std::vector<Predictor>();
    for (std::size_t k = 0; k < kClasses; ++k) {
      const Algorithm* const algorithm =
          free ? choose_algorithm(candidates, std::size_t{1} << k) : forced->second;
      selector.table_[static_cast<std::size_t>(c)][k] =
          algorithm == nullptr ? kNone : static_cast<std::uint8_t>(algorithm - all.data());
    }
  }
  return selector;
}

const Algorithm& Selector::pick(Collective collective, std::size_t bytes) const noexcept {
  return all_algorithms()[table_[static_cast<std::size_t>(collective)][size_class(bytes)]];
}

Result<const Algorithm*> uneven_algorithm(Collective collective, const Shape& shape) {
  for (const char* const name : {"direct", "ring"}) {
    const Algorithm* const algorithm = find_algorithm(collective, name);
    if (algorithm->supports(shape)) return algorithm;
  }
  return Status::error(
      Code::kInvalidUsage,
      fmt::format("no algorithm of {} supports {} ranks with {} channels and blocks of different "
                  "sizes; make WHORL_CHANNELS smaller",
                  name_of(collective), shape.nranks, shape.channels));
}

Status Selector::check(Collective collective, int nranks) const {
  if (has(collective)) return {};
  return Status::error(
      Code::kInvalidUsage,
      fmt::format("none of the algorithms of {} ({}) supports {} ranks with these channels; lower "
                  "WHORL_CHANNELS, or split the communicator with whorlCommSplit()",
                  name_of(collective), algorithm_names(collective), nranks));
}

bool Selector::valid() const noexcept {
  const auto all = all_algorithms();
  for (std::size_t c = 0; c < table_.size(); ++c) {
    const bool none = table_[c].front() == kNone;
    for (const std::uint8_t index : table_[c]) {
      if ((index == kNone) != none) return false; // has() looks at the first entry only
      if (none) continue;
      if (index >= all.size() || all[index].collective != static_cast<Collective>(c)) return false;
    }
  }
  return true;
}

Status check_overrides(std::string_view text) { return parse_overrides(text).status(); }

std::string supported_overrides(const Shape& shape, std::string_view text) {
  if (choose_overrides(shape, text).ok()) return std::string(text);
  auto parts = split(text, ',');
  std::erase_if(parts, [&](std::string_view part) { return !choose_overrides(shape, part).ok(); });
  return fmt::format("{}", fmt::join(parts, ","));
}

namespace {

Status bad_dims(std::string_view text, std::string_view why) {
  return Status::error(Code::kInvalidUsage,
                       fmt::format("WHORL_DIMS=\"{}\": {}; write sizes whose product is the number "
                                   "of ranks, for instance \"4:twoshot,2:ring\"",
                                   printable(text), printable(why)));
}

} // namespace

Result<std::vector<Dimension>> parse_dims(std::string_view text) {
  const auto bad = [&](std::string_view why) { return bad_dims(text, why); };
  std::vector<Dimension> dims;
  for (const std::string_view part : split(text, ',')) {
    Dimension dim;
    const char* const end = part.data() + part.size();
    const auto [rest, error] = std::from_chars(part.data(), end, dim.size);
    if (error != std::errc() || dim.size < 1) return bad("a size is not a whole number from 1 on");
    if (rest != end) {
      if (*rest != ':') return bad("a size is followed by something else than \":algorithm\"");
      dim.algorithm.assign(rest + 1, end);
      const auto all = all_algorithms();
      const bool known = std::any_of(all.begin(), all.end(), [&](const Algorithm& algorithm) {
        return algorithm.name == dim.algorithm;
      });
      if (!known) return bad(fmt::format("there is no algorithm \"{}\"", dim.algorithm));
    }
    dims.push_back(std::move(dim));
  }
  return dims;
}

Status check_product(const std::vector<Dimension>& dims, int nranks) {
  std::int64_t product = 1;
  for (const Dimension& dim : dims) {
    product *= dim.size;
    if (product > nranks) break; // before it overflows
  }
  if (dims.empty() || product == nranks) return {};
  return bad_dims(format_dims(dims), fmt::format("the product of the sizes is too {} for {} ranks",
                                                 product > nranks ? "large" : "small", nranks));
}

Result<std::vector<Dimension>> parse_dims(std::string_view text, int nranks) {
  auto dims = parse_dims(text);
  if (!dims.ok()) return dims;
  if (const Status fits = check_product(*dims, nranks); !fits.ok()) return fits;
  return dims;
}

std::string format_dims(const std::vector<Dimension>& dims) {
  std::string text;
  for (const Dimension& dim : dims) {
    if (!text.empty()) text += ',';
    text += std::to_string(dim.size);
    if (!dim.algorithm.empty()) text += ':' + dim.algorithm;
  }
  return text;
}

} // namespace whorl
