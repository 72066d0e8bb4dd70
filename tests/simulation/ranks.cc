#include "simulation/ranks.h"

#include <cstring>
#include <numeric>

#include "simulation/names.h"

namespace whorl::simulation {

Host::Host(const HostShape& shape)
    : shape_(shape),
      layout_(*SegmentLayout::make({.ranks = static_cast<std::uint32_t>(shape.ranks),
                                    .channels = shape.channels,
                                    .slots = shape.slots,
                                    .slot_bytes = shape.slot_bytes})),
      segment_(arena().allocate(layout_.size())) {
  arena().unback(segment_ + layout_.control_bytes(), layout_.size() - layout_.control_bytes());
  layout_.stamp(*reinterpret_cast<SegmentHeader*>(segment_));
  name_segment(segment_, layout_);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    heaps_.push_back({arena().allocate(shape.heap_bytes), shape.heap_bytes});
    arena().name(heaps_.back().data(), shape.heap_bytes, fmt::format("heap {}", rank));
  }
}

SimulatedTransport::SimulatedTransport(Host& host)
    : FifoTransport({.name = "simulated", .shares_memory = true}), host_(host) {}

Status SimulatedTransport::connect(const Membership& membership, std::span<const int> peers,
                                   std::size_t) {
  rank_ = membership.rank;
  noted_.resize(static_cast<std::size_t>(membership.nranks));
  std::vector<int> members(noted_.size());
  std::iota(members.begin(), members.end(), 0);
  attach(membership, host_.segment(), host_.layout(), std::move(members), peers,
         host_.shape().heap_bytes > 0);
  return wait_for_peers(sys().now_ns() + membership.timeout_ns, *this);
}

bool SimulatedTransport::is_gone(int peer) const noexcept {
  return has_left(peer) || world().knows_death(host_.fibres[static_cast<std::size_t>(peer)]);
}

void SimulatedTransport::poll_failures(std::uint64_t waited_ns) noexcept {
  for (const int peer : peers()) {
    const auto index = static_cast<std::size_t>(peer);
    if (noted_[index] || !world().knows_death(host_.fibres[index])) continue;
    noted_[index] = true;
    if (!has_left(peer)) note_death(peer, "died without destroying its communicator");
  }
  FifoTransport::poll_failures(waited_ns);
}

bool SimulatedTransport::locate(std::span<const std::byte> memory, std::uint64_t* offset) noexcept {
  const std::span<std::byte> heap = host_.heap(rank_);
  *offset = static_cast<std::uint64_t>(memory.data() - heap.data());
  return *offset <= heap.size() && memory.size() <= heap.size() - *offset;
}

bool SimulatedTransport::back(int, std::span<std::byte> part, bool) noexcept {
  arena().back(part.data(), part.size());
  return true;
}

std::byte* SimulatedTransport::resolve(int peer, const Descriptor& descriptor) noexcept {
  const std::span<std::byte> heap = host_.heap(peer);
  const bool inside =
      descriptor.offset <= heap.size() && descriptor.bytes <= heap.size() - descriptor.offset;
  return inside ? heap.data() + descriptor.offset : nullptr;
}

void SimulatedTransport::corrupt(int peer, const char* what) noexcept {
  world().fail(fmt::format("rank {} wrote {}", peer, what));
}

Rank::Rank(Host& host, int rank) : host_(host), transport_(host) {
  membership_.rank = rank;
  membership_.nranks = host.shape().ranks;
  membership_.channels = 1;
  membership_.peers.resize(static_cast<std::size_t>(membership_.nranks));
  membership_.comm_error = &error_;
}

void Rank::connect() {
  std::vector<int> peers;
  for (int peer = 0; peer < membership_.nranks; ++peer) {
    if (peer != number()) peers.push_back(peer);
  }
  const Status status = transport_.connect(membership_, peers, 0);
  world().require(status.ok() || error_.is_set(), "connect(): {}", status.message());
}

void Rank::revoke_access() {
  CommError never_set;
  wait_for([this] { return transport_.revoke_access() ? Progress::kDone : Progress::kIdle; },
           never_set, transport_, "peers that use this rank's memory");
  const std::span<std::byte> heap = host_.heap(number());
  if (!heap.empty()) std::memset(heap.data(), 0x33, heap.size());
}

void run_ranks(Host& host, const std::function<void(Rank&)>& body,
               const std::function<void()>& before) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int number = 0; number < host.shape().ranks; ++number) {
    ranks.push_back(std::make_unique<Rank>(host, number));
    Rank& rank = *ranks.back();
    host.fibres.push_back(world().add(fmt::format("rank {}", number), [&rank, &body] {
      body(rank);
      rank.transport().leave();
    }));
  }
  if (before) before();
  world().run();
  for (const std::size_t fibre : host.fibres) {
    world().require(world().scheduler().ended(fibre) || world().scheduler().died(fibre),
                    "rank {} has not come to its end", fibre);
  }
}

} // namespace whorl::simulation
