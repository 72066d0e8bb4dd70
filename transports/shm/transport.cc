#include "transports/shm/transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/log.h"
#include "base/params.h"
#include "memory/heap.h"
#include "memory/memory_limit.h"
#include "net/address.h"
#include "net/listener.h"
#include "node/segment.h"
#include "transports/shm/by_process.h"

namespace whorl {
namespace {

/// Makes an unguessable name of printable characters, 80 bits.
Result<std::string> random_name() {
  constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz234567";
  std::array<std::byte, 16> bytes{};
  if (const int error = sys().random_bytes(bytes); error < 0) {
    return Status::error(
        Code::kSystemError,
        fmt::format("no random bytes for the name of a socket: {}", std::strerror(-error)));
  }
  std::string name;
  for (const std::byte b : bytes) name += kAlphabet[std::to_integer<std::size_t>(b) % 32];
  return name;
}

/// Returns the pidfds of other processes. A process has one for each, whatever the number of
/// communicators.
ByProcess<const Fd>& process_fds() {
  static auto* const instance =
      new ByProcess<const Fd>; // never destroyed: threads may outlive main()
  return *instance;
}

} // namespace

Result<std::vector<std::byte>> ShmTransport::listen(const Identity& identity) {
  static_cast<void>(identity);
  const auto name = random_name();
  if (!name.ok()) return name.status();
  const SocketAddress address = SocketAddress::unix_name(*name);
  auto listener = listen_at(address);
  if (!listener.ok()) return listener.status();
  listener_ = std::move(*listener);
  const auto encoded = address.encode();
  return std::vector<std::byte>(encoded.begin(), encoded.end());
}

Reach ShmTransport::reach(const PeerInfo& self, const PeerInfo& peer, std::size_t index) const {
  const bool listens = self.addresses[index].size == SocketAddress::kEncodedBytes &&
                       peer.addresses[index].size == SocketAddress::kEncodedBytes;
  const bool reachable =
      listens && self.host_key == peer.host_key && self.process_key != peer.process_key;
  return reachable ? reach_through_memory(self.place, peer.place) : Reach{};
}

/// Checks that all FIFOs to which this rank may ever write fit into memory. Other ranks check the
/// same for their FIFOs only, so the check finds a limit that is far too low, but not one that is
/// almost enough. Finds out, too, whether there is room for more than FIFOs need: the kernel would
/// rather kill a process than refuse it memory.
Status ShmTransport::check_memory(std::size_t peers) {
  const std::size_t bytes = peers * layout().shape().channels * layout().fifo().first_size +
                            layout().control_bytes() + node_->board().size();
  const MemoryBudget budget = memory_budget();
  constexpr std::uint64_t kPart = 4; // of what is left, for the longer rings of all ranks here
  has_room_ = members().size() * peers * layout().shape().channels * layout().fifo().size <=
              budget.bytes / kPart;
  if (bytes <= budget.bytes) return {};
  return Status::error(
      Code::kSystemError,
      fmt::format("the FIFOs to {} peers need {} bytes, but {} leaves {}; lower WHORL_SLOTS, "
                  "WHORL_SLOT_BYTES or WHORL_MAX_CHANNELS, or raise the limit",
                  peers, bytes, budget.limit, budget.bytes));
}

TransportMemory ShmTransport::memory() const noexcept {
  TransportMemory now = FifoTransport::memory();
  const std::span<std::byte> board = node_->board();
  std::size_t resident = 0;
  if (!board.empty() && sys().resident(board.data(), board.size(), &resident) < 0) resident = 0;
  now.reserved += board.size();
  now.fixed += board.size();
  now.shared += resident;
  return now;
}

Status ShmTransport::connect(const Membership& membership, std::span<const int> peers,
                             std::size_t index) {
  const Fd listener = std::move(listener_);
  if (peers.empty()) return {};
  const PeerInfo& self = membership.info(membership.rank);
  ShmMeetingPlan plan;
  plan.membership = &membership;
  std::vector<int> members = members_of(membership, [&](const PeerInfo& info) {
    return info.host_key == self.host_key &&
           info.addresses[index].size == SocketAddress::kEncodedBytes;
  });
  plan.members = members;
  const auto layout = layout_for(membership, members, peers);
  if (!layout.ok()) return layout.status();
  const auto allowed = param_bool(Param::kZeroCopy);
  if (!allowed.ok()) return allowed.status();
  const bool zero_copy = *allowed && processes_of(membership, members).size() <= kMaxProcesses;
  if (zero_copy) {
    const auto heap = process_heap();
    if (heap.ok()) {
      plan.heap_fd = (*heap)->fd();
    } else if (static std::atomic_flag warned; !warned.test_and_set()) {
      log(LogLevel::kWarn,
          "no shared heap, so all messages are copied: " + heap.status().message());
    }
  }
  plan.segment = {
      .bytes = layout->size(),
      .backed_bytes = layout->control_bytes(),
      .stamp =
          [&](std::byte* segment) { layout->stamp(*reinterpret_cast<SegmentHeader*>(segment)); },
      .check =
          [&](const std::byte* segment) {
            return layout->check(*reinterpret_cast<const SegmentHeader*>(segment));
          }};
  plan.index = index;
  plan.listener = &listener;
  plan.deadline_ns = sys().now_ns() + membership.timeout_ns;
  auto meeting = node_->meet(std::move(plan));
  if (!meeting.ok()) return meeting.status();

  heaps_.resize(static_cast<std::size_t>(membership.nranks));
  for (ProcessFd& received : meeting->heaps) {
    auto heap = PeerHeap::of(membership.info(received.rank).process_key, std::move(received.fd));
    if (!heap.ok()) return heap.status().with_context(membership.describe(received.rank));
    for (const int peer : peers) {
      if (membership.same_process(peer, received.rank)) {
        heaps_[static_cast<std::size_t>(peer)] = *heap;
      }
    }
  }
  attach(membership, node_->transport_memory().data(), *layout, std::move(members), peers,
         zero_copy);
  WHORL_TRY(check_memory(peers.size()));
  for (ProcessFd& p : meeting->pidfds) {
    watch(p.rank,
          process_fds().of(membership.info(p.rank).process_key,
                           [&] { return std::make_shared<const Fd>(std::move(p.fd)); }),
          true);
  }
  for (ProcessFd& s : meeting->sockets) {
    watch(s.rank, std::make_shared<const Fd>(std::move(s.fd)), false);
  }
  // All peers have come, because the lowest rank shares the segment after it has the hellos of all.
  return {};
}

bool ShmTransport::back(int peer, std::span<std::byte> part, bool needed) noexcept {
  if (!needed && !has_room_) return false;
  const int error = node_->allocate(part);
  if (error == 0) {
    count_backed(part.size());
    return true;
  }
  if (!needed) return false;
  fail_all(Status::error(
      Code::kSystemError,
      fmt::format("rank {} cannot get {} bytes of shared memory for messages to {}: {}; lower "
                  "WHORL_SLOTS or WHORL_SLOT_BYTES, or raise the memory limit",
                  membership().rank, part.size(), membership().describe(peer),
                  std::strerror(-error))));
  return false;
}

bool ShmTransport::locate(std::span<const std::byte> source, std::uint64_t* offset) noexcept {
  return heap_find(source.data(), source.size(), offset);
}

std::byte* ShmTransport::resolve(int peer, const Descriptor& descriptor) noexcept {
  PeerHeap* const heap = heaps_[static_cast<std::size_t>(peer)].get();
  if (heap == nullptr || !heap->contains(descriptor)) return nullptr;
  std::byte* const data = heap->at(descriptor);
  if (data == nullptr) {
    fail_all(Status::error(
        Code::kSystemError,
        fmt::format("rank {} cannot map {} bytes of the heap of {}; raise its limit on addresses "
                    "(ulimit -v), or set WHORL_ZERO_COPY=0 on all ranks",
                    membership().rank, descriptor.bytes, membership().describe(peer))));
  }
  return data;
}

/// Watches the process of `rank` by its pidfd, or by the socket to that rank alone.
void ShmTransport::watch(int rank, std::shared_ptr<const Fd> fd, bool pidfd) {
  Watch watch{.ranks = {}, .pidfd = pidfd, .fd = std::move(fd)};
  for (const int peer : peers()) {
    if (pidfd ? membership().same_process(peer, rank) : peer == rank) watch.ranks.push_back(peer);
  }
  // Without POLLIN a socket shows its hang-up only.
  polled_.push_back({.fd = watch.ranks.empty() ? -1 : watch.fd->get(),
                     .events = static_cast<short>(pidfd ? POLLIN : 0),
                     .revents = 0});
  watches_.push_back(std::move(watch));
}

void ShmTransport::poll_failures(std::uint64_t waited_ns) noexcept {
  look_for_dead();
  FifoTransport::poll_failures(waited_ns);
}

/// Returns whether the process of a peer has ended, by its pidfd or, unless `surely`, by the end of
/// a socket.
bool ShmTransport::has_ended(int peer, bool surely) const noexcept {
  return std::any_of(watches_.begin(), watches_.end(), [=](const Watch& watch) {
    const auto& ranks = watch.ranks;
    if (surely && !watch.pidfd) return false;
    if (std::find(ranks.begin(), ranks.end(), peer) == ranks.end()) return false;
    const short events = watch.pidfd ? POLLIN : POLLRDHUP;
    pollfd end{.fd = watch.fd->get(), .events = events, .revents = 0};
    return sys().poll({&end, 1}, 0) > 0;
  });
}

bool ShmTransport::is_gone(int peer) const noexcept {
  return has_left(peer) || has_ended(peer, true);
}

bool ShmTransport::is_lost(int peer) noexcept {
  if (FifoTransport::is_lost(peer)) return true;
  const bool ended = has_ended(peer, false);
  if (ended) tell_death(peer);
  return ended;
}

void ShmTransport::look_for_dead() noexcept {
  if (watches_.empty() || membership().comm_error->is_set()) return;
  if (looking_.test_and_set(std::memory_order_acquire)) return;
  // A poll takes a time in proportion to the number of processes, so many are polled less often.
  constexpr std::size_t kFewWatches = 64;
  constexpr std::uint64_t kPauseOfWatchNs = 250'000;
  if (watches_.size() > kFewWatches) {
    const std::uint64_t now = sys().now_ns();
    if (now < next_look_ns_) {
      looking_.clear(std::memory_order_release);
      return;
    }
    next_look_ns_ = now + watches_.size() * kPauseOfWatchNs;
  }
  if (sys().poll(polled_, 0) > 0) {
    for (std::size_t i = 0; i < watches_.size(); ++i) {
      const Watch& watch = watches_[i];
      if (polled_[i].revents == 0) continue;
      polled_[i].fd = -1; // never polled again
      for (const int rank : watch.ranks) {
        if (has_left(rank)) continue; // orderly: leave() comes before the end of the process
        note_death(rank, watch.pidfd ? "died without destroying its communicator"
                                     : "hung up without destroying its communicator: it died or "
                                       "gave up");
      }
    }
  }
  looking_.clear(std::memory_order_release); // pairs with acquire of test_and_set()
}

} // namespace whorl
