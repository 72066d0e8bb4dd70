#include "comm/steady_costs.h"

#include <algorithm>

namespace whorl {
namespace {

/// What is measured, as places in LinkCosts. Messages and slots are decided, not measured.
template <class Visit>
void for_each_cost(LinkCosts& used, const Visit& visit) {
  for (double LinkCosts::*field : {&LinkCosts::gamma_us_per_kib, &LinkCosts::copy_us_per_kib}) {
    visit(used.*field, [field](const LinkCosts& costs) { return costs.*field; });
  }
  for (double Link::*field : {&Link::alpha_us, &Link::overhead_us, &Link::beta_us_per_kib,
                              &Link::send_us_per_kib, &Link::receive_us_per_kib}) {
    visit(used.link.*field, [field](const LinkCosts& costs) { return costs.link.*field; });
    if (!used.inner) continue;
    visit((*used.inner).*field,
          [field](const LinkCosts& costs) { return costs.inner.value_or(costs.link).*field; });
  }
}

} // namespace

LinkCosts SteadyCosts::settle(const LinkCosts& estimates, const LinkCosts& measured) {
  const std::lock_guard lock(mutex_);
  const auto end = kinds_.begin() + static_cast<std::ptrdiff_t>(std::min(known_, kKinds));
  auto kind = std::find_if(kinds_.begin(), end,
                           [&](const Kind& known) { return known.estimates == estimates; });
  if (kind == end) {
    kind = kinds_.begin() + static_cast<std::ptrdiff_t>(known_++ % kKinds);
    *kind = {.estimates = estimates, .used = measured, .measured = {}, .count = 0};
  }
  kind->measured[kind->count++ % kMeasurements] = measured;
  const std::size_t kept = std::min(kind->count, kMeasurements);
  for_each_cost(kind->used, [&](double& used, const auto& field) {
    std::array<double, kMeasurements> values{};
    for (std::size_t i = 0; i < kept; ++i) values[i] = field(kind->measured[i]);
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((kept - 1) / 2);
    std::nth_element(values.begin(), middle, values.begin() + static_cast<std::ptrdiff_t>(kept));
    if (*middle > used * kBand || *middle * kBand < used) used = *middle;
  });
  return kind->used;
}

SteadyCosts& steady_costs() {
  static SteadyCosts costs;
  return costs;
}

} // namespace whorl
