#include "base/unknown_params.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <numeric>
#include <string_view>

#include "base/log.h"
#include "base/params.h"
#include "base/printable.h"

namespace whorl {
namespace {

/// Variables that are no parameters: facts from launchers, and a setting of the torch backend.
constexpr std::array<std::string_view, 5> kOthers = {"WHORL_ADDRESS", "WHORL_NRANKS", "WHORL_PORT",
                                                     "WHORL_RANK", "WHORL_TORCH_SHARED_MEMORY"};

/// Variables that only builds and tests read: neither warned of nor proposed.
constexpr std::array<std::string_view, 3> kOfBuilds = {"WHORL_ROOT", "WHORL_SOURCE_ROOT",
                                                       "WHORL_WITH_CUDA"};

std::vector<std::string_view> known_names() {
  std::vector<std::string_view> names(kOthers.begin(), kOthers.end());
  for (const ParamInfo& param : all_params()) {
    names.emplace_back(param.name);
    if (param.old_name != nullptr) names.emplace_back(param.old_name);
  }
  return names;
}

/// Returns the least number of characters to insert, remove or replace in order to make `b` of `a`.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1); // distances of the part of `a` to all parts of `b`
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t k = 0; k < b.size(); ++k) {
      const std::size_t replaced = diagonal + (a[i] == b[k] ? 0 : 1);
      diagonal = row[k + 1];
      row[k + 1] = std::min({replaced, row[k] + 1, row[k + 1] + 1});
    }
  }
  return row.back();
}

} // namespace

std::vector<std::string> describe_unknown_params(const char* const* environment) {
  constexpr std::string_view kPrefix = "WHORL_";
  constexpr std::size_t kSimilar = 3; // largest distance of a name that may have been meant
  const std::vector<std::string_view> known = known_names();
  std::vector<std::string> sentences;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry(*environment);
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with(kPrefix) || std::find(known.begin(), known.end(), name) != known.end() ||
        std::find(kOfBuilds.begin(), kOfBuilds.end(), name) != kOfBuilds.end()) {
      continue;
    }
    const auto nearest =
        std::min_element(known.begin(), known.end(), [&](std::string_view a, std::string_view b) {
          return distance(name, a) < distance(name, b);
        });
    sentences.push_back(
        distance(name, *nearest) <= kSimilar
            ? fmt::format("there is no variable {}, did you mean {}?", printable(name), *nearest)
            : fmt::format("there is no variable {}; docs/parameters.md lists all",
                          printable(name)));
  }
  return sentences;
}

void warn_of_unknown_params() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const std::string& sentence : describe_unknown_params(environ))
      log(LogLevel::kWarn, sentence);
  });
}

} // namespace whorl
