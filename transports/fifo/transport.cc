#include "transports/fifo/transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "base/printable.h"
#include "transports/error_text.h"

namespace whorl {

Reach FifoTransport::reach_through_memory(const RankPlace& self, const RankPlace& peer) {
  if (self.cache < 0 || peer.cache < 0) {
    return {.reachable = true, .alpha_us = 0.15, .beta_us_per_kib = 0.025};
  }
  if (self.cache == peer.cache) {
    return {.reachable = true, .alpha_us = 0.08, .beta_us_per_kib = 0.017};
  }
  return {.reachable = true, .alpha_us = 0.33, .beta_us_per_kib = 0.036};
}

SegmentHeader& FifoTransport::header() const noexcept {
  return *reinterpret_cast<SegmentHeader*>(memory_);
}

RankState& FifoTransport::state_of(int rank) const noexcept {
  const int local = local_ranks_[static_cast<std::size_t>(rank)];
  return *reinterpret_cast<RankState*>(memory_ +
                                       layout_.state_offset(static_cast<std::size_t>(local)));
}

void FifoTransport::attach(const Membership& membership, std::byte* memory,
                           const SegmentLayout& layout, std::vector<int> members,
                           std::span<const int> peers, bool zero_copy) {
  membership_ = &membership;
  memory_ = memory;
  layout_ = layout;
  members_ = std::move(members);
  peers_.assign(peers.begin(), peers.end());
  local_ranks_.assign(static_cast<std::size_t>(membership.nranks), -1);
  for (std::size_t local = 0; local < members_.size(); ++local) {
    local_ranks_[static_cast<std::size_t>(members_[local])] = static_cast<int>(local);
  }
  const auto channels = static_cast<std::size_t>(membership.channels);
  endpoints_.resize(static_cast<std::size_t>(membership.nranks) * channels);
  const auto local = [&](int rank) {
    return static_cast<std::size_t>(local_ranks_[static_cast<std::size_t>(rank)]);
  };
  for (const int peer : peers_) {
    for (std::size_t channel = 0; channel < channels; ++channel) {
      const FifoEndpoint::Ends ends{
          .peer = peer,
          .send = memory + layout.fifo_offset(channel, local(membership.rank), local(peer)),
          .receive = memory + layout.fifo_offset(channel, local(peer), local(membership.rank)),
          .slots = layout.shape().slots,
          .slot_bytes = layout.shape().slot_bytes,
          .shape = &layout_.fifo(),
          .own = &state_of(membership.rank),
          .peers = &state_of(peer),
          .moved = &moved_,
          .only_peer = peers_.size() == 1,
          .zero_copy = zero_copy,
      };
      endpoints_[static_cast<std::size_t>(peer) * channels + channel] =
          std::make_unique<FifoEndpoint>(ends, static_cast<FifoHost&>(*this));
    }
  }
  departures_ = std::make_unique<Departure[]>(static_cast<std::size_t>(membership.nranks));
  mine_ = &state_of(membership.rank);
  mine_->attached.store(1, std::memory_order_release); // pairs with acquire in wait_for_peers()
  attached_.store(true, std::memory_order_release);    // pairs with acquire in notify_peers()
}

Status FifoTransport::wait_for_peers(std::uint64_t deadline_ns, Waiter& waiter) {
  const auto missing = [&](int peer) {
    return state_of(peer).attached.load(std::memory_order_acquire) == 0; // … release in attach()
  };
  auto next = peers_.begin(); // all before it have attached
  constexpr std::uint64_t kCheckNs = 40'000'000;
  std::uint64_t next_check_ns = sys().now_ns() + kCheckNs;
  Status given_up;
  const auto attempt = [&] {
    next = std::find_if(next, peers_.end(), missing);
    if (next == peers_.end()) return Progress::kDone;
    if (const std::uint64_t time = sys().now_ns();
        membership_->check_others && time >= next_check_ns) {
      next_check_ns = time + kCheckNs;
      given_up = membership_->check_others();
    }
    return given_up.ok() ? Progress::kIdle : Progress::kFailed;
  };
  // With more ranks their work takes longer; long sleeps leave the processors to them.
  constexpr std::size_t kFewPeers = 64;
  constexpr std::uint64_t kBlockPerPeerNs = 20'000;
  const std::uint64_t now = sys().now_ns();
  WaitPolicy policy{.timeout_ns = deadline_ns > now ? deadline_ns - now : 0, .spins = 20};
  if (peers_.size() > kFewPeers) {
    policy.yield_ns = 0;
    policy.block_ns = policy.first_block_ns = peers_.size() * kBlockPerPeerNs;
  }
  switch (wait_until(attempt, policy, *membership_->comm_error, waiter)) {
    case WaitResult::kReady:
      return {};
    case WaitResult::kFailed:
      return given_up.ok() ? membership_->comm_error->status() : given_up;
    case WaitResult::kTimedOut:
      break;
  }
  std::string names;
  for (const int peer : peers_) {
    if (!missing(peer)) continue;
    if (!names.empty()) names += ", ";
    names += membership_->describe(peer);
  }
  return Status::error(
      Code::kRemoteError,
      fmt::format("rank {} is not connected over {} to {}: no sign of life within {} ms; look "
                  "whether it runs and reached the creation of the communicator",
                  membership_->rank, traits().name, names, membership_->timeout_ns / 1'000'000));
}

Result<SegmentLayout> layout_for(const Membership& membership, std::span<const int> members,
                                 std::span<const int> peers) {
  for (const int peer : peers) {
    if (peer != membership.rank && std::binary_search(members.begin(), members.end(), peer)) {
      continue;
    }
    return Status::error(Code::kInternalError,
                         fmt::format("rank {} shares no memory with {}", membership.rank,
                                     membership.describe(peer)));
  }
  return SegmentLayout::make({.ranks = static_cast<std::uint32_t>(members.size()),
                              .channels = static_cast<std::uint32_t>(membership.channels),
                              .slots = static_cast<std::uint32_t>(membership.slots),
                              .slot_bytes = membership.slot_bytes,
                              .long_laps = membership.smallest_budget() == 0});
}

Endpoint* FifoTransport::endpoint(int peer, int channel) noexcept {
  if (membership_ == nullptr || peer < 0 || peer >= membership_->nranks || channel < 0 ||
      channel >= membership_->channels) {
    return nullptr;
  }
  return endpoints_[static_cast<std::size_t>(peer) *
                        static_cast<std::size_t>(membership_->channels) +
                    static_cast<std::size_t>(channel)]
      .get();
}

TransportMemory FifoTransport::memory() const noexcept {
  if (memory_ == nullptr) return {};
  TransportMemory now{.reserved = layout_.size(),
                      .fifos = backed_bytes_.load(std::memory_order_relaxed),
                      .fixed = layout_.control_bytes() + endpoints_.size() * sizeof(endpoints_[0]) +
                               peers_.size() * static_cast<std::size_t>(membership_->channels) *
                                   sizeof(FifoEndpoint)};
  if (sys().resident(memory_, layout_.size(), &now.shared) < 0) now.shared = 0;
  return now;
}

std::uint64_t FifoTransport::zero_copy_messages() const noexcept {
  std::uint64_t messages = 0;
  for (const auto& endpoint : endpoints_) {
    if (endpoint != nullptr) messages += endpoint->zero_copy_messages();
  }
  return messages;
}

// Sleeps. `sleeping` is set before the caller's last poll and stays set until a peer clears it,
// so each sleep is rung at most once, and a peer that finds `sleeping` clear makes no system call.
//
//   sleeper: heard = rings; sleeping = 1; look; futex_wait(rings == heard); heard = rings
//   ringer:  message; if sleeping and I clear it: rings += 1; futex_wake
//
// A ringer may clear `sleeping` before the sleeper sets it again and count its ring after that:
// `heard` is then too low, and without the last step all sleeps until the next ring would end at
// once.
void FifoTransport::block(std::uint64_t max_ns) noexcept {
  if (mine_ == nullptr) return ClockWaiter().block(max_ns);
  Doorbell& bell = mine_->doorbell;
  if (bell.sleeping.load(std::memory_order_relaxed) == 0) {
    heard_.store(
        bell.rings.load(std::memory_order_acquire), // pairs with release in ring_doorbell()
        std::memory_order_relaxed);
    bell.sleeping.store(1, std::memory_order_seq_cst); // pairs with exchange in ring_doorbell()
    return;
  }
  sys().futex_wait(&bell.rings, heard_.load(std::memory_order_relaxed), max_ns);
  heard_.store(bell.rings.load(std::memory_order_acquire), // pairs with release in ring_doorbell()
               std::memory_order_relaxed);
}

void FifoTransport::publish_error(std::string_view text) noexcept {
  SegmentHeader& shared = header();
  std::uint32_t none = kNoError;
  if (shared.comm_error.compare_exchange_strong(none, kErrorBeingWritten,
                                                std::memory_order_relaxed)) {
    const std::size_t size = std::min(text.size(), shared.text.size() - 1);
    std::copy_n(text.begin(), size, shared.text.begin());
    shared.text[size] = '\0';
    // Pairs with acquire in poll_error().
    shared.comm_error.store(kErrorWritten, std::memory_order_release);
  }
  for (const int peer : peers_) ring_doorbell(state_of(peer).doorbell);
}

void FifoTransport::notify_peers(const Status& comm_error) noexcept {
  if (comm_error.ok() || !attached_.load(std::memory_order_acquire))
    return; // … release in attach()
  with_error_text(*membership_, comm_error, [&](std::string_view text) { publish_error(text); });
}

void FifoTransport::fail_all(const Status& error) noexcept {
  membership_->comm_error->set(error);
  notify_peers(error);
}

void FifoTransport::corrupt(int peer, const char* what) noexcept {
  fail_all(Status::error(
      Code::kRemoteError,
      fmt::format("{} wrote {} into the memory that it shares with rank {}: it is broken or "
                  "overwrites memory that is not its own",
                  membership_->describe(peer), what, membership_->rank)));
}

void FifoTransport::poll_failures(std::uint64_t waited_ns) noexcept {
  if (mine_ == nullptr) return;
  poll_error();
  look_for_leavers(waited_ns);
}

void FifoTransport::poll_error() noexcept {
  constexpr std::uint32_t kMaxPolls = 100; // looks, about 1 ms each
  SegmentHeader& shared = header();
  // Pairs with release in publish_error().
  switch (shared.comm_error.load(std::memory_order_acquire)) {
    case kNoError:
      return;
    case kErrorBeingWritten:
      if (unfinished_error_polls_.fetch_add(1, std::memory_order_relaxed) < kMaxPolls) return;
      membership_->comm_error->set(Status::error(
          Code::kRemoteError, "a rank of this host gave up and died before it could say why"));
      return;
    default: {
      if (membership_->comm_error->is_set()) return;
      const auto end = std::find(shared.text.begin(), shared.text.end(), '\0');
      const std::string text(shared.text.begin(), end); // which a peer may still change
      membership_->comm_error->set(Status::error(Code::kRemoteError, printable(text)));
    }
  }
}

/// Returns whether this rank keeps trying to use an endpoint to a rank that has departed. An
/// attempt that began before may have failed too, so attempts count only between polls that have
/// seen the departure.
bool FifoTransport::needs(int peer) noexcept {
  constexpr std::uint32_t kLooks = 3;
  const auto channels = static_cast<std::size_t>(membership_->channels);
  bool stuck = false;
  for (std::size_t channel = 0; channel < channels; ++channel) {
    stuck |= endpoints_[static_cast<std::size_t>(peer) * channels + channel]->was_stuck();
  }
  auto& looks = departures_[static_cast<std::size_t>(peer)].stuck_looks;
  return stuck && looks.fetch_add(1, std::memory_order_relaxed) + 1 >= kLooks;
}

void FifoTransport::tell_death(int peer) noexcept {
  state_of(peer).died.store(1, std::memory_order_relaxed); // orders no other data
}

/// Returns whether a rank has noticed the death of a peer.
bool FifoTransport::has_died(int peer) const noexcept {
  return state_of(peer).died.load(std::memory_order_relaxed) != 0;
}

void FifoTransport::note_death(int peer, const char* sign) noexcept {
  tell_death(peer);
  Departure& departure = departures_[static_cast<std::size_t>(peer)];
  departure.since_ns.store(sys().now_ns(), std::memory_order_relaxed);
  departure.sign.store(sign, std::memory_order_release); // pairs with look_for_leavers()
  deaths_.fetch_add(1, std::memory_order_release);       // the same
}

/// Sets the error if this rank needs a rank that has left or died. To leave or die is no error by
/// itself, because the others may still communicate with each other. But a rank of theirs that
/// needs a dead one may not have made its call yet, so a death is an error, too, after a long wait,
/// or for who asks without waiting.
void FifoTransport::look_for_leavers(std::uint64_t waited_ns) noexcept {
  // Pairs with release in leave() and in note_death(): the loop below finds every rank counted.
  if (header().leavers.load(std::memory_order_acquire) == 0 &&
      deaths_.load(std::memory_order_acquire) == 0) {
    return;
  }
  for (const int peer : peers_) {
    if (has_left(peer)) {
      if (!needs(peer)) continue;
      membership_->comm_error->set(
          Status::error(Code::kRemoteError, text_of_leaving(*membership_, peer)));
      return;
    }
    Departure& departure = departures_[static_cast<std::size_t>(peer)];
    const char* const sign = departure.sign.load(std::memory_order_acquire);
    if (sign == nullptr) continue;
    const bool is_long =
        sys().now_ns() - departure.since_ns.load(std::memory_order_relaxed) >= kAfterDeathNs &&
        (waited_ns == 0 || waited_ns >= kAfterDeathNs);
    if (!needs(peer) && !is_long) continue;
    fail_all(
        Status::error(Code::kRemoteError, fmt::format("{} {}", membership_->describe(peer), sign)));
    return;
  }
}

void FifoTransport::tell_stuck(const StuckOperation& operation,
                               std::span<const std::uint32_t> /*sent*/) noexcept {
  if (mine_ == nullptr) return;
  const auto words = std::bit_cast<std::array<std::uint64_t, 3>>(operation);
  StuckWords& stuck = mine_->stuck;
  const std::uint32_t before = stuck.changes.load(std::memory_order_relaxed);
  stuck.changes.store(before + 1, std::memory_order_relaxed);
  // All pair with find_stuck(): who reads a new word sees that `changes` has changed, too.
  for (std::size_t i = 0; i < words.size(); ++i)
    stuck.words[i].store(words[i], std::memory_order_release);
  stuck.changes.store(before + 2, std::memory_order_release);
}

std::optional<StuckOperation> FifoTransport::find_stuck(int peer) noexcept {
  const StuckWords& stuck = state_of(peer).stuck;
  // All pair with tell_stuck().
  const std::uint32_t before = stuck.changes.load(std::memory_order_acquire);
  if (before == 0 || before % 2 != 0) return std::nullopt;
  std::array<std::uint64_t, 3> words{};
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = stuck.words[i].load(std::memory_order_acquire);
  if (stuck.changes.load(std::memory_order_relaxed) != before) return std::nullopt;
  return std::bit_cast<StuckOperation>(words);
}

bool FifoTransport::revoke_access() noexcept {
  if (mine_ == nullptr) return true;
  // Both pair with FifoEndpoint::touch_memory_of_peer().
  mine_->revoked.store(1, std::memory_order_seq_cst);
  mine_->touching.store(0, std::memory_order_release); // messages peeked and never released
  return std::none_of(peers_.begin(), peers_.end(), [this](int peer) {
    return state_of(peer).touching.load(std::memory_order_seq_cst) != 0 && !is_gone(peer);
  });
}

bool FifoTransport::has_left(int peer) const noexcept {
  return state_of(peer).left.load(std::memory_order_acquire) != 0; // pairs with release in leave()
}

void FifoTransport::leave() noexcept {
  if (mine_ == nullptr) return;
  attached_.store(false, std::memory_order_relaxed);
  // Pairs with acquire in has_left(): all messages come first.
  mine_->left.store(1, std::memory_order_release);
  header().leavers.fetch_add(1, std::memory_order_release); // pairs with look_for_leavers()
  for (const int peer : peers_) ring_doorbell(state_of(peer).doorbell);
  mine_ = nullptr;
}

} // namespace whorl
