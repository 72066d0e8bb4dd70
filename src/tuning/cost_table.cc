#include "tuning/cost_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace whorl {
namespace {

struct Field {
  std::string_view name;
  double Link::*cost; ///< null: the boundary
};
constexpr std::array kFields{Field{"alpha_us", &Link::alpha_us},
                             Field{"overhead_us", &Link::overhead_us},
                             Field{"beta_us_per_kib", &Link::beta_us_per_kib},
                             Field{"send_us_per_kib", &Link::send_us_per_kib},
                             Field{"receive_us_per_kib", &Link::receive_us_per_kib},
                             Field{"boundary_gb_per_s", nullptr}};

constexpr double kLargest = 1e9;

} // namespace

Result<CostFile> CostFile::parse(std::string_view text, const std::string& name) {
  const auto bad = [&](const std::string& why) {
    return Status::error(Code::kInvalidUsage, fmt::format("{}: {}", name, printable(why)));
  };
  using nlohmann::json;
  json document;
  try {
    document = json::parse(text);
  } catch (const json::parse_error& error) {
    const std::string_view before = text.substr(0, std::max<std::size_t>(error.byte, 1) - 1);
    return bad(
        fmt::format("this is not JSON from line {}, column {} on; costs are written as "
                    "{{\"host\": {{\"alpha_us\": 0.5}}}}",
                    1 + std::count(before.begin(), before.end(), '\n'),
                    before.size() - (before.rfind('\n') + 1) + 1));
  } catch (const json::exception&) {
    return bad("a number is too large; costs are numbers from 0 to 1e9");
  }
  if (!document.is_object()) return bad("this is not an object of levels");
  CostFile file;
  for (const auto& [level, fields] : document.items()) {
    std::size_t scope = 0;
    while (scope < kScopes && name_of(static_cast<Scope>(scope)) != level) ++scope;
    if (scope == kScopes) {
      return bad(fmt::format(
          "there is no level \"{}\"; there are cache, host, leaf, pod and network", level));
    }
    if (!fields.is_object()) return bad(fmt::format("\"{}\" is not an object of costs", level));
    for (const auto& [key, value] : fields.items()) {
      const auto* const field =
          std::find_if(kFields.begin(), kFields.end(),
                       [&wanted = key](const Field& it) { return it.name == wanted; });
      if (field == kFields.end()) {
        return bad(
            fmt::format("\"{}\" of \"{}\" is unknown; there are alpha_us, overhead_us, "
                        "beta_us_per_kib, send_us_per_kib, receive_us_per_kib and "
                        "boundary_gb_per_s",
                        key, level));
      }
      const double number = value.is_number() ? value.get<double>() : -1;
      const double cost = field->cost == nullptr ? us_per_kib(number) : number;
      if (!(number >= 0 && number <= kLargest && cost <= kLargest)) {
        return bad(fmt::format("\"{}\" of \"{}\" is not a number from 0 to 1e9", key, level));
      }
      file.entries_.push_back(
          {.scope = static_cast<Scope>(scope), .cost = field->cost, .value = cost});
    }
  }
  return file;
}

void CostFile::apply(Level& level) const {
  for (const Entry& entry : entries_) {
    if (entry.scope != level.scope) continue;
    (entry.cost == nullptr ? level.boundary_us_per_kib : level.link.*entry.cost) = entry.value;
  }
}

} // namespace whorl
