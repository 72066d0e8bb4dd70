#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace whorl::simulation {

/// Links between the hosts of simulated processes, which lose everything for a while or for ever,
/// and how TCP gets bytes over them all the same: it sends them again until an acknowledgement
/// comes back.
class Links {
 public:
  static constexpr std::uint64_t kNever = UINT64_MAX;

  /// Loses all that process `from` sends to process `to` from `begin_ns` until `end_ns`.
  void interrupt(std::size_t from, std::size_t to, std::uint64_t begin_ns, std::uint64_t end_ns);

  /// Times at which something that was sent has arrived, and at which its sender knows.
  struct Delivery {
    std::uint64_t arrives_ns = kNever, acknowledged_ns = kNever;
  };
  /// How the kernel repeats what is not acknowledged.
  enum class Repeats : std::uint8_t {
    kDoubling, ///< after 0.2 s and pauses that double
    kLinear,   ///< at intervals of 0.2 s for seven times, then as above (TCP_THIN_LINEAR_TIMEOUTS)
    kOpening,  ///< after a second and pauses that double, as a request for a connection
  };
  /// Delivers what is sent at `sent_ns` and is under way for `latency_ns`.
  Delivery deliver(std::size_t from, std::size_t to, std::uint64_t sent_ns,
                   std::uint64_t latency_ns, Repeats repeats) const noexcept;

 private:
  struct Outage {
    std::size_t from, to;
    std::uint64_t begin_ns, end_ns;
  };
  bool is_up(std::size_t from, std::size_t to, std::uint64_t at_ns) const noexcept;

  std::vector<Outage> outages_;
};

} // namespace whorl::simulation
