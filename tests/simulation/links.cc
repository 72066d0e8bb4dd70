#include "simulation/links.h"

#include <algorithm>

namespace whorl::simulation {
namespace {

constexpr int kMostRepeats = 15; ///< as the kernel's tcp_retries2

/// Returns the pause before a repetition, the first of which has number 1.
std::uint64_t pause_before(int number, Links::Repeats repeats) noexcept {
  constexpr std::uint64_t kFirstNs = 200'000'000, kOpeningNs = 1'000'000'000;
  constexpr int kLinear = 7;
  switch (repeats) {
    case Links::Repeats::kDoubling:
      return kFirstNs << (number - 1);
    case Links::Repeats::kLinear:
      return number <= kLinear ? kFirstNs : kFirstNs << (number - kLinear);
    case Links::Repeats::kOpening:
      return kOpeningNs << (number - 1);
  }
  return kFirstNs;
}

} // namespace

void Links::interrupt(std::size_t from, std::size_t to, std::uint64_t begin_ns,
                      std::uint64_t end_ns) {
  outages_.push_back({.from = from, .to = to, .begin_ns = begin_ns, .end_ns = end_ns});
}

bool Links::is_up(std::size_t from, std::size_t to, std::uint64_t at_ns) const noexcept {
  return std::none_of(outages_.begin(), outages_.end(), [&](const Outage& outage) {
    return outage.from == from && outage.to == to && outage.begin_ns <= at_ns &&
           at_ns < outage.end_ns;
  });
}

Links::Delivery Links::deliver(std::size_t from, std::size_t to, std::uint64_t sent_ns,
                               std::uint64_t latency_ns, Repeats repeats) const noexcept {
  Delivery delivery;
  std::uint64_t try_ns = sent_ns;
  for (int number = 1; number <= kMostRepeats; ++number) {
    const std::uint64_t arrives_ns = try_ns + latency_ns;
    if (is_up(from, to, try_ns)) {
      delivery.arrives_ns = std::min(delivery.arrives_ns, arrives_ns);
      if (is_up(to, from, arrives_ns)) {
        delivery.acknowledged_ns = arrives_ns;
        break;
      }
    }
    try_ns += pause_before(number, repeats);
  }
  return delivery;
}

} // namespace whorl::simulation
