#include "transports/fifo/transport.h"

#include <fmt/core.h>

#include <algorithm>

namespace whorl {

SegmentHeader& FifoTransport::header() const noexcept {
  return *reinterpret_cast<SegmentHeader*>(memory_);
}

Place& FifoTransport::place_of(int rank) const noexcept {
  const int place = place_of_rank_[static_cast<std::size_t>(rank)];
  return *reinterpret_cast<Place*>(memory_ + layout_.place_offset(static_cast<std::size_t>(place)));
}

void FifoTransport::attach(const Membership& membership, std::byte* memory,
                           const SegmentLayout& layout, std::vector<int> members,
                           std::span<const int> peers, bool zero_copy) {
  membership_ = &membership;
  memory_ = memory;
  layout_ = layout;
  members_ = std::move(members);
  peers_.assign(peers.begin(), peers.end());
  place_of_rank_.assign(static_cast<std::size_t>(membership.nranks), -1);
  for (std::size_t place = 0; place < members_.size(); ++place) {
    place_of_rank_[static_cast<std::size_t>(members_[place])] = static_cast<int>(place);
  }
  const auto channels = static_cast<std::size_t>(membership.channels);
  endpoints_.resize(static_cast<std::size_t>(membership.nranks) * channels);
  const auto place = [&](int rank) {
    return static_cast<std::size_t>(place_of_rank_[static_cast<std::size_t>(rank)]);
  };
  for (const int peer : peers_) {
    for (std::size_t channel = 0; channel < channels; ++channel) {
      const FifoEndpoint::Ends ends{
          .peer = peer,
          .send = memory + layout.fifo_offset(channel, place(membership.rank), place(peer)),
          .receive = memory + layout.fifo_offset(channel, place(peer), place(membership.rank)),
          .slots = layout.shape().slots,
          .slot_bytes = layout.shape().slot_bytes,
          .own = &place_of(membership.rank),
          .peers = &place_of(peer),
          .zero_copy = zero_copy,
      };
      endpoints_[static_cast<std::size_t>(peer) * channels + channel] =
          std::make_unique<FifoEndpoint>(ends, static_cast<FifoHost&>(*this));
    }
  }
  stuck_looks_ =
      std::make_unique<std::atomic<std::uint32_t>[]>(static_cast<std::size_t>(membership.nranks));
  mine_ = &place_of(membership.rank);
  mine_->attached.store(1, std::memory_order_release); // pairs with acquire in wait_for_peers()
  attached_.store(true, std::memory_order_release);    // pairs with acquire in tell()
}

Status FifoTransport::wait_for_peers(std::uint64_t deadline_ns, Napper& napper) {
  const auto missing = [&](int peer) {
    return place_of(peer).attached.load(std::memory_order_acquire) == 0; // … release in attach()
  };
  auto next = peers_.begin(); // all before it have attached
  const auto attempt = [&] {
    next = std::find_if(next, peers_.end(), missing);
    return next == peers_.end() ? Progress::kDone : Progress::kIdle;
  };
  // The more ranks, the longer their work takes; who waits meanwhile leaves them the processors.
  constexpr std::size_t kFewPeers = 64;
  constexpr std::uint64_t kNapOfPeerNs = 20'000;
  const std::uint64_t now = sys().now_ns();
  WaitPolicy policy{.timeout_ns = deadline_ns > now ? deadline_ns - now : 0, .spins = 20};
  if (peers_.size() > kFewPeers) {
    policy.yield_ns = 0;
    policy.nap_ns = policy.first_nap_ns = peers_.size() * kNapOfPeerNs;
  }
  switch (wait_until(attempt, policy, *membership_->verdict, napper)) {
    case WaitResult::kReady:
      return {};
    case WaitResult::kFailed:
      return membership_->verdict->status();
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
                  membership_->rank, name(), names, membership_->timeout_ns / 1'000'000));
}

Status check_members(const Membership& membership, std::span<const int> members,
                     std::span<const int> peers) {
  for (const int peer : peers) {
    if (peer != membership.rank && std::binary_search(members.begin(), members.end(), peer)) {
      continue;
    }
    return Status::error(Code::kInternalError,
                         fmt::format("rank {} shares no memory with {}", membership.rank,
                                     membership.describe(peer)));
  }
  return {};
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
                      .fifos = backed_fifos_.load(std::memory_order_relaxed) * layout_.fifo_bytes(),
                      .fixed = layout_.control_bytes() + endpoints_.size() * sizeof(endpoints_[0]) +
                               peers_.size() * static_cast<std::size_t>(membership_->channels) *
                                   sizeof(FifoEndpoint)};
  if (sys().resident(memory_, layout_.size(), &now.shared) < 0) now.shared = 0;
  return now;
}

// Sleeping. `sleeping` is set before the caller's last look and stays set until a peer clears it,
// so each nap is rung at most once and a peer that finds it clear pays nothing.
//
//   sleeper: heard = rings; sleeping = 1; look; futex_wait(rings == heard)
//   ringer:  message; if sleeping and I clear it: rings += 1; futex_wake
void FifoTransport::nap(std::uint64_t max_ns) noexcept {
  if (mine_ == nullptr) return ClockNapper().nap(max_ns);
  Doorbell& bell = mine_->doorbell;
  if (bell.sleeping.load(std::memory_order_relaxed) == 0) {
    heard_.store(bell.rings.load(std::memory_order_acquire), // pairs with release in ring()
                 std::memory_order_relaxed);
    bell.sleeping.store(1, std::memory_order_seq_cst); // pairs with exchange in ring()
    return;
  }
  sys().futex_wait(&bell.rings, heard_.load(std::memory_order_relaxed), max_ns);
}

void FifoTransport::publish_verdict(std::string_view text) noexcept {
  SegmentHeader& shared = header();
  std::uint32_t none = kNoVerdict;
  if (shared.verdict.compare_exchange_strong(none, kVerdictBeingWritten,
                                             std::memory_order_relaxed)) {
    const std::size_t size = std::min(text.size(), shared.text.size() - 1);
    std::copy_n(text.begin(), size, shared.text.begin());
    shared.text[size] = '\0';
    // Pairs with acquire in look_for_verdict().
    shared.verdict.store(kVerdictWritten, std::memory_order_release);
  }
  for (const int peer : peers_) ring(place_of(peer).doorbell);
}

void FifoTransport::tell(const Status& verdict) noexcept {
  if (verdict.ok() || !attached_.load(std::memory_order_acquire)) return; // … release in attach()
  try {
    // What another rank did already says who; forwarding it must not add a name each time.
    publish_verdict(verdict.code() == Code::kRemoteError
                        ? verdict.message()
                        : fmt::format("{} gave up: {}", membership_->describe(membership_->rank),
                                      verdict.message()));
  } catch (const std::bad_alloc&) {
    publish_verdict("a rank gave up and has no memory left to say why");
  }
}

void FifoTransport::fail_all(const Status& error) noexcept {
  membership_->verdict->raise(error);
  tell(error);
}

void FifoTransport::corrupt(int peer, const char* what) noexcept {
  fail_all(Status::error(
      Code::kRemoteError,
      fmt::format("{} wrote {} into the memory that it shares with rank {}: it is broken or "
                  "overwrites memory that is not its own",
                  membership_->describe(peer), what, membership_->rank)));
}

void FifoTransport::look_around(std::uint64_t waited_ns) noexcept {
  static_cast<void>(waited_ns);
  if (mine_ == nullptr) return;
  look_for_verdict();
  look_for_leavers();
}

void FifoTransport::look_for_verdict() noexcept {
  constexpr std::uint32_t kPatience = 100; // looks, about 1 ms each
  SegmentHeader& shared = header();
  // Pairs with release in publish_verdict().
  switch (shared.verdict.load(std::memory_order_acquire)) {
    case kNoVerdict:
      return;
    case kVerdictBeingWritten:
      if (unfinished_verdict_looks_.fetch_add(1, std::memory_order_relaxed) < kPatience) return;
      membership_->verdict->raise(Status::error(
          Code::kRemoteError, "a rank of this host gave up and died before it could say why"));
      return;
    default: {
      if (membership_->verdict->raised()) return;
      const auto end = std::find(shared.text.begin(), shared.text.end(), '\0');
      membership_->verdict->raise(
          Status::error(Code::kRemoteError, std::string(shared.text.begin(), end)));
    }
  }
}

/// A rank may leave while others still finish with each other, so that alone is no error. It is one
/// where this rank keeps trying to use an endpoint to it. An attempt that began before the rank
/// left may have failed too, so only failed attempts between looks that know of the leaving count.
void FifoTransport::look_for_leavers() noexcept {
  constexpr std::uint32_t kLooks = 3;
  // Pairs with release in leave(): who is counted is found below.
  if (header().leavers.load(std::memory_order_acquire) == 0) return;
  const auto channels = static_cast<std::size_t>(membership_->channels);
  for (const int peer : peers_) {
    if (!has_left(peer)) continue;
    bool stuck = false;
    for (std::size_t channel = 0; channel < channels; ++channel) {
      stuck |= endpoints_[static_cast<std::size_t>(peer) * channels + channel]->was_stuck();
    }
    std::atomic<std::uint32_t>& looks = stuck_looks_[static_cast<std::size_t>(peer)];
    if (!stuck || looks.fetch_add(1, std::memory_order_relaxed) + 1 < kLooks) continue;
    membership_->verdict->raise(
        Status::error(Code::kRemoteError,
                      fmt::format("{} has destroyed its communicator while rank {} waits for it",
                                  membership_->describe(peer), membership_->rank)));
    return;
  }
}

bool FifoTransport::withdraw_memory() noexcept {
  if (mine_ == nullptr) return true;
  // Both pair with FifoEndpoint::touch_memory_of_peer().
  mine_->withdrawn.store(1, std::memory_order_seq_cst);
  mine_->touching.store(0, std::memory_order_release); // messages looked at, and never released
  return std::none_of(peers_.begin(), peers_.end(), [this](int peer) {
    return place_of(peer).touching.load(std::memory_order_seq_cst) != 0 && !is_gone(peer);
  });
}

bool FifoTransport::has_left(int peer) const noexcept {
  return place_of(peer).left.load(std::memory_order_acquire) != 0; // pairs with release in leave()
}

void FifoTransport::leave() noexcept {
  if (mine_ == nullptr) return;
  attached_.store(false, std::memory_order_relaxed);
  // Pairs with acquire in has_left(): all messages come first.
  mine_->left.store(1, std::memory_order_release);
  header().leavers.fetch_add(1, std::memory_order_release); // pairs with look_for_leavers()
  for (const int peer : peers_) ring(place_of(peer).doorbell);
  mine_ = nullptr;
}

} // namespace whorl
