// How an endpoint goes on when a rail fails and others are left.
//
// A write that was posted may have arrived or not, and may still be on its way. So an operation is
// complete only when all that this side has sent is known to have arrived, and a side that
// finds a rail failed closes it, which ends what the peer writes there, waits until its device has
// reported everything that did arrive, and reports that to the peer by the control socket. The peer
// closes its end likewise. A side that has the other's report sends by another rail what it lacks:
//
//     alive ▶ close ▶ closing ▶ device has reported all ▶ tell the peer ▶ closed
//     report of the peer: close, if alive ▶ send again what it does not have
#include <algorithm>

#include "transports/verbs/endpoint.h"

namespace whorl {

using State = VerbsRail::State;

/// Chooses the rails for what is sent from now on: all that are alive but the spares, or one spare.
/// Keeps the last choice if none is alive.
void VerbsEndpoint::choose_carriers() noexcept {
  const auto take_alive = [this](bool spare) {
    for (std::size_t i = 0; i < rails_.size(); ++i) {
      if (rails_[i].state == State::kAlive && rails_[i].spare == spare) {
        carriers_.push_back(static_cast<std::uint8_t>(i));
      }
    }
    return !carriers_.empty();
  };
  const std::uint8_t last = carriers_.empty() ? 0 : carriers_.front();
  carriers_.clear();
  if (take_alive(false)) return;
  if (take_alive(true)) {
    carriers_.resize(1);
  } else {
    carriers_.push_back(last);
  }
}

void VerbsEndpoint::keep_rails(std::uint32_t mask) noexcept {
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    if ((mask >> i & 1) != 0) continue;
    rails_[i].queue->close();
    rails_[i].state = State::kClosed;
    rails_[i].closed_by_peer = true;
  }
  choose_carriers();
  const auto is_left_out = [](const VerbsRail& rail) { return rail.state == State::kClosed; };
  if (std::count_if(rails_.begin(), rails_.end(), is_left_out) + 1 ==
      static_cast<std::ptrdiff_t>(rails_.size())) {
    traits_.queues_sends = false; // the failure of the only rail is an error anyway
  }
}

void RailWatch::serve_all() noexcept {
  if (endpoints_.empty()) return;
  judge_.read_reports();
  if (!raised_.exchange(false, std::memory_order_acquire)) return; // pairs with release in raise()
  for (VerbsCompletions* const completions : completions_) completions->poll();
  for (VerbsEndpoint* const endpoint : endpoints_) {
    if (!endpoint->settle_rails()) raise();
  }
}

bool VerbsEndpoint::settle_rails() noexcept {
  // An error is set for all endpoints, and stands.
  if (refused_ || look_at_rails() == Progress::kFailed || judge_.has_left(peer_)) return true;
  const auto unsettled = [](const VerbsRail& rail) {
    return rail.state == State::kClosing || (rail.state == State::kAlive && rail.queue->failed());
  };
  return std::none_of(rails_.begin(), rails_.end(), unsettled) && !credit_lost_ &&
         to_repeat_.empty();
}

/// Handles rails that have failed. kFailed: the last one has, and the error is set.
Progress VerbsEndpoint::look_at_rails() noexcept {
  std::uint32_t suspected = suspected_.load(std::memory_order_relaxed);
  if (suspected != 0) suspected = suspected_.exchange(0, std::memory_order_relaxed);
  if (has_reports_.load(std::memory_order_acquire)) take_reports(); // pairs with take_report()
  Progress result = Progress::kIdle;
  bool any_alive = false;
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    VerbsRail& rail = rails_[i];
    any_alive |= rail.state == State::kAlive;
    if (rail.state == State::kClosed) continue;
    const bool broken = rail.queue->failed() || (suspected >> i & 1) != 0;
    if (rail.state == State::kAlive && !broken) continue;
    const bool others = std::any_of(rails_.begin(), rails_.end(), [&rail](const VerbsRail& other) {
      return &other != &rail && other.state == State::kAlive && !other.queue->failed();
    });
    if (rail.state == State::kAlive && (!others || judge_.has_left(peer_))) {
      rail.completions->poll();
      if (rail.queue->failed()) result = judge_.connection_failed(peer_, *rail.queue);
      continue;
    }
    if (rail.state == State::kAlive) {
      rail.queue->close();
      rail.state = State::kClosing;
      choose_carriers();
    }
    rail.completions->poll();
    if (rail.queue->drained()) report(i);
  }
  if (!to_repeat_.empty()) send_again();
  if (credit_lost_) give_credit();
  // Two rails may have failed at once, one on each side.
  if (!any_alive) return judge_.connection_failed(peer_, *rails_[carriers_.front()].queue);
  return result;
}

/// Tells the peer what has arrived, and that nothing can arrive any more by this rail.
void VerbsEndpoint::report(std::size_t rail) noexcept {
  verbs::RailReport report{.channel = static_cast<std::uint16_t>(channel_),
                           .rail = static_cast<std::uint16_t>(rail),
                           .received = received_};
  for (std::uint64_t number = received_ + 1; number <= received_ + layout_.places(); ++number) {
    if (find_notice(number) != nullptr || has_small(number)) report.add(number);
  }
  rails_[rail].state = State::kClosed;
  judge_.rail_failed(peer_, report, *rails_[rail].queue);
}

void VerbsEndpoint::take_report(const verbs::RailReport& report) noexcept {
  const std::lock_guard lock(reports_mutex_);
  if (reports_.size() == rails_.size()) return; // a peer tells of each rail once: more is nonsense
  reports_.push_back(report);
  has_reports_.store(true, std::memory_order_release); // pairs with acquire in look_at_rails()
  watch_.raise();
}

/// Handles what the peer has told of rails.
void VerbsEndpoint::take_reports() noexcept {
  std::vector<verbs::RailReport> reports;
  {
    const std::lock_guard lock(reports_mutex_);
    reports.swap(reports_);
    has_reports_.store(false, std::memory_order_relaxed);
  }
  for (const verbs::RailReport& report : reports) {
    if (report.rail >= rails_.size() || report.received > sent_) {
      malformed("a malformed report of an RDMA connection");
      return;
    }
    VerbsRail& rail = rails_[report.rail];
    if (rail.closed_by_peer) continue;
    rail.closed_by_peer = true;
    if (rail.state == State::kAlive) {
      rail.queue->close();
      rail.state = State::kClosing;
      choose_carriers();
    }
    credit_lost_ = true;
    for (std::uint64_t number = released_ + 1; number <= sent_; ++number) {
      Sent& message = outgoing(number);
      if (message.rail != report.rail) continue;
      if (report.has(number)) {
        message.request = 0;
      } else if (!message.from_heap || !is_written(message)) {
        to_repeat_.push_back(number);
      }
    }
  }
}

/// Sends messages again that were lost with a rail, as far as there is room.
void VerbsEndpoint::send_again() noexcept {
  std::size_t done = 0;
  for (; done < to_repeat_.size(); ++done) {
    const std::uint64_t number = to_repeat_[done];
    const VerbsRail& rail = rails_[carrier_of(number)];
    if (rail.state != State::kAlive || !rail.queue->room(2)) break;
    post(number);
  }
  to_repeat_.erase(to_repeat_.begin(), to_repeat_.begin() + static_cast<std::ptrdiff_t>(done));
}

} // namespace whorl
