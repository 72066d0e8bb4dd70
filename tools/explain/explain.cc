#include "tools/explain/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <sstream>

#include "base/collective_name.h"
#include "comm/setup.h"
#include "tools/cli/app.h"
#include "tools/cli/pages.h"
#include "tuning/selector.h"

namespace whorl::explain {
namespace {

constexpr int kMaxRanks = 4096, kMaxMeasuredRanks = 64;
constexpr std::size_t kMaxMeasuredBytes = std::size_t{1} << 28;
constexpr std::size_t kMaxBytes = std::size_t{1} << 50;
constexpr int kBadInput = 2;

/// Returns sizes from 8 bytes to 512 MiB (8 MiB for measurements), a factor of 4 apart.
std::vector<std::size_t> size_classes(bool measures) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 8; bytes <= (std::size_t{1} << (measures ? 24 : 30)); bytes *= 4) {
    sizes.push_back(bytes);
  }
  return sizes;
}

/// Replaces a number of hosts by the numbers of ranks of each. Returns what is wrong.
std::string spread(std::vector<int>& hosts, int nranks) {
  if (hosts.size() > 1) {
    if (std::accumulate(hosts.begin(), hosts.end(), 0L) == nranks) return {};
    return fmt::format("--hosts {} does not add up to the number of ranks, {}.",
                       fmt::join(hosts, ","), nranks);
  }
  const int count = hosts.front();
  if (count > nranks) return fmt::format("There are more hosts ({}) than ranks.", count);
  hosts.clear();
  for (int host = 0; host < count; ++host) {
    hosts.push_back((host + 1) * nranks / count - host * nranks / count);
  }
  return {};
}

std::string check(Arguments& arguments, const std::string& collective) {
  const auto explained = [](Collective one) {
    return one != Collective::kSend && one != Collective::kRecv;
  };
  const auto named = find_collective(collective);
  if (!named || !explained(*named)) {
    std::vector<std::string_view> names;
    for (int c = 0; c < kNumCollectives; ++c) {
      if (explained(static_cast<Collective>(c))) {
        names.push_back(name_of(static_cast<Collective>(c)));
      }
    }
    return fmt::format("There is no collective \"{}\"; there are {}.", collective,
                       fmt::join(names, ", "));
  }
  arguments.collective = *named;
  auto parsed = parse_dims(arguments.dims, arguments.shape.nranks);
  if (!parsed.ok()) return parsed.status().message();
  arguments.shape.dims = *std::move(parsed);
  const bool starts = arguments.measures || arguments.communicators > 0;
  if (starts && arguments.shape.nranks > kMaxMeasuredRanks) {
    return fmt::format("--measure and --communicators start at most {} ranks, not {}.",
                       kMaxMeasuredRanks, arguments.shape.nranks);
  }
  if (starts && !arguments.shape.dims.empty()) {
    return "--measure and --communicators take the dimensions from WHORL_DIMS, not from --dims.";
  }
  if (const std::string bad = spread(arguments.hosts, arguments.shape.nranks); !bad.empty()) {
    return bad;
  }
  if (arguments.sizes.empty()) arguments.sizes = size_classes(arguments.measures);
  if (arguments.collective == Collective::kBarrier) arguments.sizes = {0};
  std::sort(arguments.sizes.begin(), arguments.sizes.end());
  if (arguments.sizes.back() > kMaxBytes) { // -1 is read as the greatest number
    return "--bytes takes sizes from 0 to 1 PiB.";
  }
  if (arguments.measures && arguments.sizes.back() > kMaxMeasuredBytes) {
    return "--measure takes sizes up to 256 MiB.";
  }
  return {};
}

} // namespace

std::optional<Arguments> parse(int argc, const char* const* argv, Exit& exit) {
  Arguments arguments;
  std::string collective;
  LinkCosts& links = arguments.links;
  arguments.shape.nranks = 2;
  cli::App app(
      "Says which algorithm a collective uses and why: the predicted time of each candidate, by "
      "the costs that ranks like this process would use, by given ones or, with --measure, next to "
      "measured times. The digest is a number of all choices: ranks and runs with the same one "
      "compute the same bits.",
      "whorl-explain");
  app.add_option("collective", collective, "allreduce, broadcast, ...")->required();
  app.add_option("-n,--ranks", arguments.shape.nranks, "number of ranks (2)")
      ->check(CLI::Range(1, kMaxRanks));
  app.add_option("-b,--bytes", arguments.sizes,
                 "bytes of the larger side of the operation, separated by commas: 8,64K,1M (all "
                 "of 8, 32, 128, ... 512M; with --measure up to 8M)")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--channels", arguments.shape.channels, "channels side by side (1)")
      ->check(CLI::Range(1, 16));
  CLI::Option* const hosts =
      app.add_option("--hosts", arguments.hosts,
                     "number of hosts over which the ranks are spread evenly (1), or numbers of "
                     "ranks of each host: 5,3")
          ->delimiter(',')
          ->check(CLI::Range(1, kMaxRanks));
  app.add_flag("--one-machine", arguments.one_machine,
               "the hosts share the processors of this machine, as containers do")
      ->needs(hosts);
  app.add_option("--dims", arguments.dims,
                 "levels of a hierarchy, innermost first: 4:twoshot,2:ring");
  CLI::Option* const measure =
      app.add_flag("--measure", arguments.measures, "start ranks on this host and measure");
  app.add_option("--rounds", arguments.rounds, "number of rounds of a measurement (7)")
      ->check(CLI::Range(3, 99))
      ->needs(measure);
  CLI::Option* const communicators =
      app.add_option("--communicators", arguments.communicators,
                     "make so many communicators on this host and show how their choices differ")
          ->check(CLI::Range(2, 500))
          ->excludes(measure);
  app.add_flag("--fresh", arguments.fresh, "make each communicator in new processes")
      ->needs(communicators);
  app.add_flag("--json", arguments.json, "print JSON, for programs")->excludes(communicators);
  hosts->excludes(measure)->excludes(communicators);
  std::vector<CLI::Option*> costs;
  const auto is_cost = [&](CLI::Option* option) {
    costs.push_back(option->excludes(measure)->excludes(communicators)->excludes(hosts));
  };
  const CLI::Validator is_number(
      [](const std::string& text) {
        return std::isnan(std::strtod(text.c_str(), nullptr)) ? text + " is not a number" : "";
      },
      "");
  const auto cost = [&](const char* name, double& value, const char* what) {
    is_cost(app.add_option(name, value, fmt::format("{} ({})", what, value))
                ->check(CLI::Range(0.0, 1e9))
                ->check(is_number));
  };
  cost("--alpha", links.outermost().link.alpha_us, "µs of a round of empty messages");
  cost("--overhead", links.outermost().link.overhead_us, "µs of a processor for each message");
  cost("--beta", links.outermost().link.beta_us_per_kib, "µs for a KiB to pass");
  cost("--send", links.outermost().link.send_us_per_kib, "µs of a processor to send a KiB");
  cost("--receive", links.outermost().link.receive_us_per_kib,
       "µs of a processor to receive a KiB");
  cost("--gamma", links.gamma_us_per_kib, "µs to reduce a KiB, beyond copying it");
  cost("--copy", links.copy_us_per_kib, "µs to copy a KiB");
  cost("--ranks-per-core", links.ranks_per_core, "ranks that share a core");
  is_cost(app.add_option("--slots", links.slots, "messages on their way between two ranks (4)")
              ->check(CLI::Range(2, 64)));
  is_cost(app.add_option("--cache-bytes", links.cache_bytes, "cache of a core alone (1048576)")
              ->check(CLI::Range(0.0, 1e12)));
  is_cost(app.add_option("--message-bytes", links.message_bytes, "payload of a slot (65536)")
              ->check(CLI::Range(64.0, 1e9)));
  if (const auto page = cli::page_for(app, argc, argv)) {
    exit = {0, *page};
    return std::nullopt;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, err;
    const int code = app.exit(error, out, err);
    exit = code == 0 ? Exit{0, out.str()}
                     : Exit{kBadInput, fmt::format("whorl-explain: {}\n", app.refusal(error))};
    return std::nullopt;
  }
  arguments.given = std::any_of(costs.begin(), costs.end(),
                                [](const CLI::Option* option) { return option->count() > 0; });
  if (const std::string bad = check(arguments, collective); !bad.empty()) {
    exit = {kBadInput, fmt::format("whorl-explain: {}\n", bad)};
    return std::nullopt;
  }
  return arguments;
}

std::vector<const Algorithm*> candidates(Collective collective, const Shape& shape) {
  std::vector<const Algorithm*> found;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective != collective || !algorithm.supports(shape)) continue;
    const bool compared = shape.nranks <= kMaxMeasuredRanks;
    if (compared && same_schedules(&algorithm, found, shape) != &algorithm) continue;
    found.push_back(&algorithm);
  }
  return found;
}

std::vector<Row> predict(const Arguments& arguments) {
  std::vector<Row> rows;
  const auto algorithms = candidates(arguments.collective, arguments.shape);
  const auto all = predictors(arguments.collective, arguments.shape, arguments.links);
  std::vector<Predictor> shown;
  for (const Algorithm* algorithm : algorithms) {
    shown.emplace_back(*algorithm, arguments.shape, arguments.links);
  }
  for (const std::size_t bytes : arguments.sizes) {
    Row& row = rows.emplace_back(Row{.bytes = bytes});
    for (const Predictor& one : shown) row.predicted.push_back(one.predict(bytes));
    row.choice = same_schedules(choose_algorithm(all, bytes), algorithms, arguments.shape);
    row.least = least_time(arguments.collective, arguments.shape, bytes, arguments.links);
  }
  return rows;
}

Status choose_as_here(Arguments& arguments, std::vector<Row>& rows) {
  auto options = Options::from_environment();
  if (!options.ok()) return options.status();
  if (arguments.shape.channels > 1) options->channels = arguments.shape.channels;
  options->max_channels = std::max(options->max_channels, options->channels);
  if (!arguments.dims.empty()) options->dims = arguments.dims;
  const auto setup =
      rehearse(*options, {.ranks = arguments.hosts, .one_machine = arguments.one_machine});
  if (!setup.ok()) return setup.status();
  arguments.shape = setup->shape;
  arguments.links = setup->links;
  arguments.digest = setup->digest();
  arguments.about = setup->describe();
  rows = predict(arguments);
  const auto algorithms = candidates(arguments.collective, arguments.shape);
  for (Row& row : rows) {
    row.choice = same_schedules(&setup->selector.pick(arguments.collective, row.bytes), algorithms,
                                arguments.shape);
  }
  return {};
}

} // namespace whorl::explain
