// Tables of predictions and measurements, for readers and for programs.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tools/explain/explain.h"
#include "tuning/cost_table.h"

namespace whorl::explain {
namespace {

std::string size_text(std::size_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

std::string time_text(double us) {
  if (us < 100) return fmt::format("{:.2f}", us);
  return us < 100'000 ? fmt::format("{:.0f}", us) : fmt::format("{:.0f}k", us / 1000);
}

std::string within(Scope scope) {
  return scope == Scope::kNetwork ? "over the network" : fmt::format("within a {}", name_of(scope));
}

/// Returns the parts of a predicted time by scope: several levels may be within a host.
std::map<std::string, double> by_scope(const LinkCosts& links, const Prediction& predicted) {
  std::map<std::string, double> parts;
  for (std::size_t level = 0; level < links.count; ++level) {
    parts[std::string(name_of(links.levels.at(level).scope))] += predicted.level_us.at(level);
  }
  return parts;
}

/// Says which part of the choice's predicted time goes where, the largest first.
std::string where_time_goes(const Arguments& arguments, const Row& row,
                            const std::vector<const Algorithm*>& algorithms) {
  const auto at = std::find(algorithms.begin(), algorithms.end(), row.choice);
  if (at == algorithms.end()) return {};
  const Prediction& predicted = row.predicted[static_cast<std::size_t>(at - algorithms.begin())];
  std::vector<std::pair<double, std::string>> parts;
  double rest = predicted.us;
  for (const auto& [name, us] : by_scope(arguments.links, predicted)) {
    parts.emplace_back(us, arguments.links.count == 1 ? "links" : name);
    rest -= us;
  }
  parts.emplace_back(rest, "processor");
  std::sort(parts.rbegin(), parts.rend());
  std::string text;
  for (const auto& [us, name] : parts) {
    const double part = predicted.us > 0 ? 100 * us / predicted.us : 0;
    if (part < 1) continue;
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", name, part);
  }
  return text;
}

} // namespace

std::string to_text(const Arguments& arguments, const std::vector<Row>& rows) {
  const LinkCosts& costs = arguments.links;
  std::string text =
      fmt::format("{} of {} ranks, {}\n", name_of(arguments.collective), arguments.shape.nranks,
                  arguments.given    ? "costs as given"
                  : arguments.probed ? "costs measured here"
                                     : "costs of ranks like this process");
  for (std::size_t number = 0; number < costs.count; ++number) {
    const Level& level = costs.levels.at(number);
    const Link& link = level.link;
    text += fmt::format(
        "{}: a round {:.2f} µs, a message {:.2f} µs; for each KiB sending {:.3f}, "
        "receiving {:.3f}, passing {:.3f} µs",
        arguments.given ? "links" : within(level.scope), link.alpha_us, link.overhead_us,
        link.send_us_per_kib, link.receive_us_per_kib, link.beta_us_per_kib);
    if (level.boundary_us_per_kib > 0) {
      text += fmt::format("; {:.3g} GB/s out of it", gb_per_s(level.boundary_us_per_kib));
    }
    text += "\n";
  }
  text += fmt::format(
      "a processor: reducing {:.3f}, copying {:.3f} µs for each KiB; {:.3g} ranks "
      "for each core\n",
      costs.gamma_us_per_kib, costs.copy_us_per_kib, costs.ranks_per_core);
  if (!arguments.about.empty()) text += arguments.about + "\n";
  if (arguments.digest != 0) text += fmt::format("digest of choices {:016x}\n", arguments.digest);
  text += "\n";
  const auto algorithms = candidates(arguments.collective, arguments.shape);
  std::string head = fmt::format("{:>10}  {:<16}", "size", "choice");
  for (const Algorithm* algorithm : algorithms) head += fmt::format("{:>17}", algorithm->name);
  if (arguments.measures) head += fmt::format("{:>10}{:>10}", "regret", "noise");
  head += fmt::format("{:>7}  {}", "bound", "time goes into");
  text += head + "\n";
  for (const Row& row : rows) {
    text += fmt::format("{:>10}  {:<16}", size_text(row.bytes), row.choice->name);
    for (std::size_t a = 0; a < algorithms.size(); ++a) {
      std::string cell = time_text(row.predicted[a].us);
      if (!row.measured_us.empty()) cell += " | " + time_text(row.measured_us[a]);
      text += fmt::format("{:>17}", cell);
    }
    if (!row.measured_us.empty()) {
      text += fmt::format("{:>8.1f} %{:>8.1f} %", 100 * row.regret(algorithms),
                          100 * row.noise(algorithms));
    }
    text += fmt::format("{:>5.0f} %  {}\n", 100 * row.of_bound(algorithms),
                        where_time_goes(arguments, row, algorithms));
  }
  text += arguments.measures ? "\npredicted | measured µs; regret: of the choice against the "
                               "quickest, as measured; noise: of the choice against itself\n"
                             : "\npredicted µs\n";
  text +=
      "bound: the least time that these costs permit any algorithm, as a part of the choice's\n";
  return text;
}

std::string to_json(const Arguments& arguments, const std::vector<Row>& rows) {
  using nlohmann::json;
  const auto levels_json = [](const LinkCosts& costs) {
    json levels;
    for (std::size_t number = 0; number < costs.count; ++number) {
      const Level& level = costs.levels.at(number);
      const Link& link = level.link;
      json& entry = levels[std::string(name_of(level.scope))];
      entry = {{"alpha_us", link.alpha_us},
               {"overhead_us", link.overhead_us},
               {"beta_us_per_kib", link.beta_us_per_kib},
               {"send_us_per_kib", link.send_us_per_kib},
               {"receive_us_per_kib", link.receive_us_per_kib}};
      if (level.boundary_us_per_kib > 0) {
        entry["boundary_gb_per_s"] = gb_per_s(level.boundary_us_per_kib);
      }
    }
    return levels;
  };
  const LinkCosts& costs = arguments.links;
  json document{{"collective", name_of(arguments.collective)},
                {"ranks", arguments.shape.nranks},
                {"channels", arguments.shape.channels},
                {"measured", arguments.measures},
                {"costs",
                 {{"levels", levels_json(costs)},
                  {"gamma_us_per_kib", costs.gamma_us_per_kib},
                  {"copy_us_per_kib", costs.copy_us_per_kib},
                  {"ranks_per_core", costs.ranks_per_core},
                  {"slots", costs.slots},
                  {"cache_bytes", costs.cache_bytes},
                  {"message_bytes", costs.message_bytes}}}};
  if (arguments.digest != 0) document["digest"] = fmt::format("{:016x}", arguments.digest);
  document["probed"] = arguments.probed;
  const auto algorithms = candidates(arguments.collective, arguments.shape);
  for (const Row& row : rows) {
    json entry{{"bytes", row.bytes},
               {"choice", row.choice->name},
               {"least_us", row.least.us},
               {"limit", row.least.limit},
               {"of_bound", row.of_bound(algorithms)}};
    for (std::size_t a = 0; a < algorithms.size(); ++a) {
      json& cell = entry["algorithms"][std::string(algorithms[a]->name)];
      const Prediction& predicted = row.predicted[a];
      cell["predicted_us"] = predicted.us;
      cell["level_us"] = by_scope(costs, predicted);
      if (row.measured_us.empty()) continue;
      cell["measured_us"] = row.measured_us[a];
      cell["spread"] = row.spread[a];
    }
    if (!row.measured_us.empty()) {
      entry["regret"] = row.regret(algorithms);
      entry["noise"] = row.noise(algorithms);
      entry["again_us"] = row.again_us;
    }
    for (const Round& round : row.rounds) {
      json times{{"exchange_ns", round.exchange_ns}, {"again_us", round.again_us}};
      for (std::size_t a = 0; a < algorithms.size(); ++a) {
        times["us"][std::string(algorithms[a]->name)] = round.us[a];
      }
      entry["rounds"].push_back(std::move(times));
    }
    document["rows"].push_back(std::move(entry));
  }
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

} // namespace whorl::explain
