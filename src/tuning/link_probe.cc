#include "tuning/link_probe.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "kernels/reduce.h"

namespace whorl {
namespace {

/// Number of rounds that are timed together: so many that reading the clock does not matter.
constexpr int kBatch = 8;
constexpr int kBatches = 32;
constexpr int kFewBatches = 3;
/// Sizes of the exchanges of large messages: the first ones find memory that has never been used,
/// as they go round the slots or the ring of a FIFO for the first time.
constexpr std::size_t kLargeBytes = 32 * 1024;
constexpr int kWarmUp = 100;
constexpr int kTimed = 8;
constexpr int kLarge = kWarmUp + kTimed;
/// Number of buffers of large messages: together larger than a first-level cache.
constexpr int kPieces = 4;
/// Part of a turn that one more round adds to an operation where ranks share cores: 0.55 to 0.7
/// with two and with four ranks for each core.
constexpr double kPartOfTurn = 0.6;
/// Upper bound of a round between cores, ten times that of the slowest cores. Longer rounds are due
/// to other programs on the machine, which must not decide for the life of a communicator.
constexpr double kLongestRoundUs = 10;

double microseconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-3; }

/// Returns the value below which a part `q` of `values` lies.
double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at = values.begin() +
                  static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}
double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

/// Exchange of messages with one peer.
class Exchange {
 public:
  Exchange(const ProbePeer& peer, const WaitPolicy& policy, const CommError& comm_error,
           Waiter& waiter)
      : peer_(peer),
        endpoint_(*peer.endpoint),
        policy_(policy),
        comm_error_(comm_error),
        waiter_(waiter) {}

  /// Sends and receives `count` messages of `bytes` each, at most `ahead` more sent than received,
  /// and has all of them delivered.
  Status run(int count, std::size_t bytes, int ahead, bool nontemporal) {
    sent_ = received_ = 0;
    fill_ns_.clear();
    empty_ns_.clear();
    arrivals_ns_.clear();
    const auto attempt = [&] { return advance(count, bytes, ahead, nontemporal); };
    switch (wait_until(attempt, policy_, comm_error_, waiter_)) {
      case WaitResult::kReady:
        return {};
      case WaitResult::kTimedOut:
        return Status::error(
            Code::kRemoteError,
            fmt::format("rank {} did not answer within {} ms while the cost of messages was "
                        "measured; look whether it runs, or set WHORL_PROBE=0 on rank 0",
                        peer_.rank, policy_.timeout_ns / 1'000'000));
      case WaitResult::kFailed:
        break;
    }
    if (comm_error_.is_set()) return comm_error_.status();
    return Status::error(
        Code::kRemoteError,
        fmt::format("rank {} sent another message than the one for measuring the link; do all "
                    "ranks use the same whorl?",
                    peer_.rank));
  }

  // Times of the last run, by message. With empty messages only the arrivals of the last of each
  // batch, because reading the clock takes as long as such a message.
  std::vector<std::uint64_t> fill_ns_, empty_ns_, arrivals_ns_;

 private:
  Fingerprint fingerprint(int number) const {
    return {.sequence = static_cast<std::uint32_t>(number),
            .collective = static_cast<std::uint8_t>(Collective::kSend),
            .count_plan = Fingerprint::kMaxCount};
  }

  /// Returns the offset of a message's memory: consecutive messages use different memory, as in an
  /// operation.
  static std::size_t piece(int number) {
    return static_cast<std::size_t>(number % kPieces) * kLargeBytes;
  }

  bool send(std::size_t bytes, bool nontemporal) {
    const std::uint64_t begin = bytes > 0 ? sys().now_ns() : 0;
    const std::span<const std::byte> source(out_.data() + piece(sent_), bytes);
    if (endpoint_.can_send_descriptor(source)) {
      if (endpoint_.try_send_descriptor(source, fingerprint(sent_)) != DescriptorSend::kSent)
        return false;
    } else {
      const std::span<std::byte> slot = endpoint_.try_reserve(bytes);
      if (slot.data() == nullptr) return false;
      if (nontemporal) {
        nontemporal_copy(default_simd())(slot.data(), source.data(), bytes);
        nontemporal_fence();
      } else if (bytes > 0) {
        std::memcpy(slot.data(), source.data(), bytes);
      }
      endpoint_.commit(bytes, fingerprint(sent_));
    }
    if (bytes > 0) fill_ns_.push_back(sys().now_ns() - begin);
    ++sent_;
    return true;
  }

  /// Returns whether a message came; sets `wrong` if it is not the expected one.
  bool receive(std::size_t bytes, bool& wrong) {
    const std::uint64_t begin = bytes > 0 ? sys().now_ns() : 0;
    std::byte* const target = in_.data() + piece(received_);
    if (bytes > 0) endpoint_.post_recv({target, bytes}, fingerprint(received_));
    const Message message = endpoint_.try_peek();
    if (!message) return false;
    if (message.bytes != bytes || !(message.fingerprint == fingerprint(received_))) {
      wrong = true;
      return false;
    }
    if (bytes > 0 && message.data != target) std::memcpy(target, message.data, bytes);
    endpoint_.release();
    ++received_;
    if (bytes > 0 || received_ % kBatch == 0) arrivals_ns_.push_back(sys().now_ns());
    if (bytes > 0) empty_ns_.push_back(arrivals_ns_.back() - begin);
    return true;
  }

  Progress advance(int count, std::size_t bytes, int ahead, bool nontemporal) {
    bool moved = false, wrong = false;
    while (sent_ < count && sent_ - received_ < ahead && send(bytes, nontemporal)) moved = true;
    while (received_ < count && receive(bytes, wrong)) moved = true;
    if (wrong) return Progress::kFailed;
    const Progress progress = endpoint_.progress();
    if (progress == Progress::kFailed) return progress;
    if (sent_ == count && received_ == count && endpoint_.flushed() &&
        endpoint_.released() >= endpoint_.sent()) {
      return Progress::kDone;
    }
    return moved || progress != Progress::kIdle ? Progress::kAdvanced : Progress::kIdle;
  }

  const ProbePeer& peer_;
  Endpoint& endpoint_;
  const WaitPolicy& policy_;
  const CommError& comm_error_;
  Waiter& waiter_;
  std::vector<std::byte> out_ = std::vector<std::byte>(kPieces * kLargeBytes, std::byte{1});
  std::vector<std::byte> in_ = std::vector<std::byte>(kPieces * kLargeBytes, std::byte{2});
  int sent_ = 0, received_ = 0;
};

/// Returns the median of the timed messages, in µs for each KiB.
double per_kib(const std::vector<std::uint64_t>& ns, std::size_t bytes) {
  std::vector<double> timed;
  for (std::size_t i = kWarmUp; i < ns.size(); ++i) timed.push_back(microseconds(ns[i]));
  return median(std::move(timed)) * 1024 / static_cast<double>(bytes);
}

} // namespace

ProbePartners probe_partners(const std::vector<PeerInfo>& peers, int rank) {
  std::map<std::uint64_t, std::size_t> number; // of each host, by lowest rank
  std::vector<std::vector<int>> hosts;
  std::size_t host = 0, place = 0;
  for (std::size_t r = 0; r < peers.size(); ++r) {
    const auto [known, is_new] = number.emplace(peers[r].host_key, hosts.size());
    if (is_new) hosts.emplace_back();
    if (static_cast<int>(r) == rank) {
      host = known->second;
      place = hosts[host].size();
    }
    hosts[known->second].push_back(static_cast<int>(r));
  }
  const auto at = [&](std::size_t h, std::size_t p) {
    return h < hosts.size() && p < hosts[h].size() ? hosts[h][p] : -1;
  };
  return {.near = at(host, place ^ 1), .far = at(host ^ 1, place)};
}

Result<ProbeResult::Peer> probe_link(const ProbePeer& peer, const WaitPolicy& policy,
                                     const CommError& comm_error, Waiter& waiter) {
  ProbeResult::Peer result;
  Exchange exchange(peer, policy, comm_error, waiter);

  // The additional batch warms up.
  const int batches = 1 + (peer.networked || peer.crowded ? kFewBatches : kBatches);
  WHORL_TRY(exchange.run(kBatch * batches, 0, 1, false));
  const auto& ends = exchange.arrivals_ns_;
  std::vector<double> rounds;
  for (std::size_t batch = 1; batch < ends.size(); ++batch) {
    rounds.push_back(microseconds(ends[batch] - ends[batch - 1]) / kBatch);
  }
  // Between cores a batch can only be delayed; over a network it may also be faster than usual.
  result.alpha_us = quantile(std::move(rounds), peer.networked ? 0.5 : 0.25);

  const std::size_t bytes = std::min(kLargeBytes, peer.slot_bytes);
  WHORL_TRY(exchange.run(kLarge, bytes, kLarge, false));
  if (peer.networked) {
    const auto& arrivals = exchange.arrivals_ns_;
    result.beta_us_per_kib = microseconds(arrivals.back() - arrivals[kWarmUp - 1]) * 1024 /
                             (kTimed * static_cast<double>(bytes));
    return result;
  }
  result.send_us_per_kib = per_kib(exchange.fill_ns_, bytes);
  result.receive_us_per_kib = per_kib(exchange.empty_ns_, bytes);
  // Operations use non-temporal stores where they are quicker.
  if (nontemporal_copy(default_simd()) == nullptr) return result;
  WHORL_TRY(exchange.run(kLarge, bytes, kLarge, true));
  const double send = per_kib(exchange.fill_ns_, bytes),
               receive = per_kib(exchange.empty_ns_, bytes);
  if (send + receive < result.send_us_per_kib + result.receive_us_per_kib) {
    result.send_us_per_kib = send;
    result.receive_us_per_kib = receive;
  }
  return result;
}

double probe_turn(const ProbePeer& peer, const WaitPolicy& policy, const CommError& comm_error,
                  Waiter& waiter) {
  constexpr int kTurns = 49;
  std::vector<double> turns;
  for (int i = 0; i < kTurns; ++i) {
    const std::uint64_t begin = sys().now_ns();
    std::uint32_t attempts = 0;
    // Counts all attempts before the first yield, and the one after it.
    const auto attempt = [&] {
      static_cast<void>(peer.endpoint->try_peek());
      return ++attempts <= policy.spins + 1 ? Progress::kIdle : Progress::kDone;
    };
    if (wait_until(attempt, policy, comm_error, waiter) != WaitResult::kReady) break;
    turns.push_back(microseconds(sys().now_ns() - begin));
  }
  return median(std::move(turns));
}

void probe_processor(ProbeResult& result) {
  static std::once_flag once;
  static double copy_us_per_kib, gamma_us_per_kib;
  std::call_once(once, [] {
    constexpr std::size_t kCount = kLargeBytes / sizeof(float);
    std::vector<float> a(kCount, 1.0F), b(kCount, 2.0F), sum(kCount, 0.0F);
    const ReduceKernel add = reduce_kernel(DataType::kFloat32, ReduceOp::kSum, default_simd());
    const std::array<const void*, 2> sources{a.data(), b.data()};
    std::vector<double> copies, reductions;
    for (int i = 0; i < kTimed + 1; ++i) {
      const std::uint64_t begin = sys().now_ns();
      std::memcpy(sum.data(), a.data(), kLargeBytes);
      const std::uint64_t middle = sys().now_ns();
      add(sources, sum.data(), kCount, 1);
      const std::uint64_t end = sys().now_ns();
      copies.push_back(microseconds(middle - begin) * 1024 / kLargeBytes);
      reductions.push_back(microseconds(end - middle) * 1024 / kLargeBytes);
    }
    copy_us_per_kib = median(std::move(copies));
    gamma_us_per_kib = std::max(median(std::move(reductions)) - copy_us_per_kib, 0.002);
  });
  result.copy_us_per_kib = copy_us_per_kib;
  result.gamma_us_per_kib = gamma_us_per_kib;
}

LinkCosts merge(const LinkCosts& estimates, const std::vector<ProbeResult>& results,
                double senders) {
  const auto of_all = [&](const auto& field, double estimate) {
    std::vector<double> values;
    for (const ProbeResult& result : results) {
      const double value = field(result);
      if (value > 0 && value < 1e9) values.push_back(value); // also keeps out NaN
    }
    return values.empty() ? estimate : median(std::move(values));
  };
  // Ranks that share a core pass data through its caches, others do not, and both kinds are among
  // the partners of a rank: of two so different values the median may be either.
  const auto mean_of = [&](ProbeResult::Peer ProbeResult::*peer, double ProbeResult::Peer::*what) {
    const double middle = of_all([&](const ProbeResult& r) { return r.*peer.*what; }, 0);
    double sum = 0, count = 0;
    for (const ProbeResult& result : results) {
      const double value = result.*peer.*what;
      if (!(value > 0 && value <= 3 * middle)) continue; // skips delayed measurements
      sum += value;
      ++count;
    }
    return count > 0 ? sum / count : 0;
  };
  // A round is over when all ranks of a core have had their turn. The number of ranks of a core
  // depends on where ranks happen to run; the harmonic mean does not: cores hand over at the same
  // rate, and the reciprocal turns of a core's ranks add up to that rate.
  double rate = 0, turns = 0;
  for (const ProbeResult& result : results) {
    if (!(result.turn_us > 0 && result.turn_us < 1e9)) continue;
    rate += 1 / result.turn_us;
    ++turns;
  }
  const double turn = turns > 0 ? turns / rate : 0;
  const auto replace = [&](Link& link, ProbeResult::Peer ProbeResult::*peer) {
    const auto median_of = [&](double ProbeResult::Peer::*what, double estimate) {
      return of_all([&](const ProbeResult& r) { return r.*peer.*what; }, estimate);
    };
    const double unmeasured = -1;
    const double alpha = median_of(&ProbeResult::Peer::alpha_us, unmeasured);
    if (alpha == unmeasured) return;
    link.overhead_us = std::min(link.overhead_us, alpha);
    link.send_us_per_kib = mean_of(peer, &ProbeResult::Peer::send_us_per_kib);
    link.receive_us_per_kib = mean_of(peer, &ProbeResult::Peer::receive_us_per_kib);
    link.beta_us_per_kib = median_of(&ProbeResult::Peer::beta_us_per_kib, 0);
    // In shared memory a message arrives long before its receiver has the core again, so the time
    // of an exchange depends only on the order in which ranks run, and does not count. Ranks that
    // run after their partners need not wait for the next turn.
    const bool networked = link.beta_us_per_kib > 0;
    link.alpha_us = turn == 0 ? alpha : (networked ? alpha + turn : kPartOfTurn * turn);
    if (turn == 0 && !networked) link.alpha_us = std::min(link.alpha_us, kLongestRoundUs);
  };
  LinkCosts costs = estimates;
  for (std::size_t number = 0; number < costs.count; ++number) {
    Level& level = costs.levels.at(number);
    const bool far = level.scope > Scope::kHost;
    const double alone = level.link.beta_us_per_kib;
    replace(level.link, far ? &ProbeResult::far : &ProbeResult::near);
    double& beta = level.link.beta_us_per_kib;
    if (!far || beta == alone) continue;
    const double boundary = beta / senders;
    if (number > 0 && costs.levels.at(number - 1).scope <= Scope::kHost) {
      costs.levels.at(number - 1).boundary_us_per_kib = boundary;
    }
    // One rank alone is as quick as the estimate, unless that is more than all of them can send.
    beta = std::clamp(alone, boundary, beta);
  }
  costs.gamma_us_per_kib =
      of_all([](const auto& r) { return r.gamma_us_per_kib; }, costs.gamma_us_per_kib);
  costs.copy_us_per_kib =
      of_all([](const auto& r) { return r.copy_us_per_kib; }, costs.copy_us_per_kib);
  return costs;
}

} // namespace whorl
