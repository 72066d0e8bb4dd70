#include "transports/faulty/injector.h"

#include <fmt/core.h>

#include <csignal>

#include "base/hash.h"
#include "base/system.h"

namespace whorl {
namespace {

/// Waiter of a stalled rank: answers nobody, but sees when the other ranks have given up.
class StalledWaiter final : public Waiter {
 public:
  explicit StalledWaiter(Waiter& below) noexcept : below_(below) {}
  void block(std::uint64_t max_ns) noexcept override { sys().sleep_ns(max_ns); }
  void poll_failures(std::uint64_t waited_ns) noexcept override { below_.poll_failures(waited_ns); }

 private:
  Waiter& below_;
};

/// Returns a number in [0, 1) that depends on all arguments alike.
template <class... Parts>
double draw(Parts... parts) noexcept {
  Hash hash;
  (hash.mix(static_cast<std::uint64_t>(parts)), ...);
  // The finalizer of SplitMix64: after the hash alone, numbers in sequence are close together.
  std::uint64_t bits = hash.value();
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  bits ^= bits >> 31;
  constexpr int kMantissa = 53;
  return static_cast<double>(bits >> (64 - kMantissa)) /
         static_cast<double>(std::uint64_t{1} << kMantissa);
}

std::uint64_t part_of(std::uint64_t longest_ns, double part) noexcept {
  return static_cast<std::uint64_t>(static_cast<double>(longest_ns) * part);
}

} // namespace

FaultInjector::FaultInjector(const FaultySettings& settings, const Membership& membership,
                             Waiter& below)
    : settings_(settings), membership_(membership), below_(below) {
  if (settings.rank >= 0 && settings.rank != membership.rank) settings_ = {};
}

std::uint64_t FaultInjector::delay_ns(int peer, int channel, std::uint64_t number) const noexcept {
  enum Draw : std::uint8_t { kConnection, kWhether, kLength };
  const auto drawn = [&](Draw which, std::uint64_t message) {
    return draw(settings_.seed, membership_.rank, peer, channel, which, message);
  };
  std::uint64_t delay = part_of(settings_.reorder_ns, drawn(kConnection, 0));
  if (drawn(kWhether, number) < settings_.delay_share) {
    delay += part_of(settings_.delay_ns, drawn(kLength, number));
  }
  return delay;
}

void FaultInjector::count_message(int peer) noexcept {
  ++messages_;
  while (next_fault_ < settings_.faults.size() &&
         settings_.faults[next_fault_].message <= messages_) {
    strike(settings_.faults[next_fault_++], peer);
  }
}

std::size_t FaultInjector::received_bytes(std::size_t bytes) noexcept {
  if (!truncates_ || bytes == 0) return bytes;
  truncates_ = false;
  return bytes / 2;
}

void FaultInjector::strike(const Fault& fault, int peer) noexcept {
  switch (fault.kind) {
    case Fault::Kind::kStall:
      stall(fault.duration_ns);
      break;
    case Fault::Kind::kCut:
      membership_.comm_error->set(Status::error(
          Code::kRemoteError,
          fmt::format("the connection of {} to {} was cut at message {} (WHORL_FAULTY)",
                      membership_.describe(membership_.rank), membership_.describe(peer),
                      fault.message)));
      break;
    case Fault::Kind::kTruncate:
      truncates_ = true;
      break;
    case Fault::Kind::kKill:
      sys().raise_signal(fault.signal);
      break;
  }
}

void FaultInjector::stall(std::uint64_t duration_ns) noexcept {
  StalledWaiter waiter(below_);
  const WaitPolicy policy{
      .timeout_ns = duration_ns != 0 ? duration_ns : UINT64_MAX, .spins = 0, .yield_ns = 0};
  static_cast<void>(
      wait_until([] { return Progress::kIdle; }, policy, *membership_.comm_error, waiter));
}

} // namespace whorl
