// Settings of users: parameters, costs, dimensions and algorithms. The first byte chooses; the rest
// is a value, or the contents of a file.
#include <cmath>
#include <cstdlib>

#include "base/params.h"
#include "comm/options.h"
#include "input.h"
#include "target.h"
#include "tuning/cost_table.h"
#include "tuning/selector.h"

namespace whorl::fuzz {
namespace {

constexpr int kRanks = 12;

void check_costs(std::string_view text) {
  const auto file = CostFile::parse(text, "costs");
  if (!file.ok()) return require_error(file.status());
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    Level level{.scope = static_cast<Scope>(scope)};
    file->apply(level);
    for (const double cost :
         {level.link.alpha_us, level.link.overhead_us, level.link.beta_us_per_kib,
          level.link.send_us_per_kib, level.link.receive_us_per_kib, level.boundary_us_per_kib}) {
      require(std::isfinite(cost) && cost >= 0 && cost <= 1e9, "a cost from 0 to 1e9");
    }
  }
}

void check_dims(std::string_view text) {
  const auto dims = parse_dims(text, kRanks);
  if (!dims.ok()) return require_error(dims.status());
  int product = 1;
  for (const Dimension& dim : *dims) product *= dim.size;
  require(dims->empty() || product == kRanks, "sizes whose product is the number of ranks");
  const auto again = parse_dims(format_dims(*dims), kRanks);
  require(again.ok() && format_dims(*again) == format_dims(*dims), "written as read");
}

void check_algorithms(std::string_view text) {
  const auto selector = Selector::make({.nranks = kRanks, .channels = 1}, {}, text);
  if (!selector.ok()) return require_error(selector.status());
  require(selector->valid(), "a table that other ranks accept");
}

/// Requires that options with any value of one parameter are within their ranges, or refused.
void check_parameter(Input input) {
  const auto params = all_params();
  const ParamInfo& param = params[input.byte() % params.size()];
  const std::string value(input.text().substr(0, input.text().find('\0')));
  ::setenv(param.name, value.c_str(), 1);
  const auto options = Options::from_environment();
  ::unsetenv(param.name);
  if (!options.ok()) return require_error(options.status());
  require(options->channels >= 1 && options->channels <= options->max_channels, "channels");
  require(options->max_channels >= 2 && options->max_channels <= 16, "the most channels");
  require(options->slots == 0 || (options->slots >= 2 && options->slots <= 64), "slots");
  require(options->slot_bytes % 64 == 0 && options->slot_bytes <= 16 << 20, "bytes of a slot");
  require(options->timeout_ns >= 1'000'000, "a timeout");
}

} // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all{
      R"(0{"host": {"boundary_gb_per_s": 12.5}, "network": {"alpha_us": 9, "beta_us_per_kib": 0}})",
      "14:twoshot,3:ring", "12,6", "2ring", "2allreduce:tree,broadcast:tree"};
  char number = 0;
  for (const ParamInfo& param : all_params()) {
    all.push_back('3' + (number++ + std::string(param.default_value)));
  }
  return all;
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl::fuzz;
  Input input(data, size);
  switch (input.byte() % 4) {
    case 0: // '0'
      check_costs(input.text());
      break;
    case 1:
      check_dims(input.text());
      break;
    case 2:
      check_algorithms(input.text());
      break;
    default:
      check_parameter(input);
  }
  return 0;
}
