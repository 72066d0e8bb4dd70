#include "transports/inproc/transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>

#include "base/params.h"

namespace whorl {

/// Memory of one communicator's ranks in this process. The last rank frees it.
struct InprocSegment {
  std::byte* data = nullptr;
  SegmentLayout layout;
  std::vector<int> members;
  std::vector<int> joined; ///< ranks that have joined; guarded by the registry's mutex

  InprocSegment() = default;
  InprocSegment(const InprocSegment&) = delete;
  InprocSegment& operator=(const InprocSegment&) = delete;
  ~InprocSegment() {
    if (data != nullptr) sys().munmap(data, layout.size());
  }
};

namespace {

/// Segments by which ranks of one process find each other. The key holds the communicator's whole
/// identity, so that two jobs with the same number do not meet.
struct Registry {
  using Key = std::array<std::byte, sizeof(Identity)>;
  std::mutex mutex;
  std::map<Key, std::weak_ptr<InprocSegment>> segments;
};

Registry& registry() {
  static auto* const instance = new Registry; // never destroyed: threads may outlive main()
  return *instance;
}

Registry::Key key_of(const Identity& identity) noexcept {
  Registry::Key key;
  std::copy(identity.job.begin(), identity.job.end(), key.begin());
  std::copy(identity.secret.begin(), identity.secret.end(), key.begin() + identity.job.size());
  return key;
}

Result<std::shared_ptr<InprocSegment>> make_segment(const SegmentLayout& layout,
                                                    const std::vector<int>& members) {
  auto segment = std::make_shared<InprocSegment>();
  segment->layout = layout;
  segment->members = members;
  void* address = nullptr;
  // Shared, although no other process sees the mapping: receivers look at a page before a sender
  // writes it. In a private mapping the look maps the page of zeros, and the write then copies that
  // page and interrupts all cores.
  const int error = sys().mmap(nullptr, layout.size(), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, &address);
  if (error < 0) {
    return Status::error(Code::kSystemError,
                         fmt::format("cannot map {} bytes for the FIFOs of {} ranks: {}",
                                     layout.size(), members.size(), std::strerror(-error)));
  }
  segment->data = static_cast<std::byte*>(address);
  layout.stamp(*reinterpret_cast<SegmentHeader*>(segment->data));
  return segment;
}

/// Joins the segment that this rank shares with the others; the first rank makes it.
Result<std::shared_ptr<InprocSegment>> join_segment(const Membership& membership,
                                                    const SegmentLayout& layout,
                                                    const std::vector<int>& members) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.segments, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<InprocSegment>& entry = all.segments[key_of(membership.identity)];
  std::shared_ptr<InprocSegment> segment = entry.lock();
  if (segment == nullptr) {
    auto made = make_segment(layout, members);
    if (!made.ok()) return made.status();
    entry = segment = *made;
  }
  WHORL_TRY(layout.check(*reinterpret_cast<const SegmentHeader*>(segment->data)));
  if (segment->members != members || std::find(segment->joined.begin(), segment->joined.end(),
                                               membership.rank) != segment->joined.end()) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("rank {} cannot join its communicator in this process: it did so before, or "
                    "ranks disagree about who is in it; a unique id serves for one communicator",
                    membership.rank));
  }
  segment->joined.push_back(membership.rank);
  return segment;
}

} // namespace

Result<std::vector<std::byte>> InprocTransport::listen(const Identity& identity) {
  static_cast<void>(identity);
  return std::vector<std::byte>{};
}

Reach InprocTransport::reach(const PeerInfo& self, const PeerInfo& peer, std::size_t index) const {
  static_cast<void>(index);
  const bool reachable = self.host_key == peer.host_key && self.process_key == peer.process_key;
  return reachable ? reach_through_memory(self.place, peer.place) : Reach{};
}

Status InprocTransport::connect(const Membership& membership, std::span<const int> peers,
                                std::size_t index) {
  static_cast<void>(index);
  if (peers.empty()) return {};
  const PeerInfo& self = membership.info(membership.rank);
  std::vector<int> members = members_of(membership, [&](const PeerInfo& info) {
    return info.host_key == self.host_key && info.process_key == self.process_key;
  });
  const auto layout = layout_for(membership, members, peers);
  if (!layout.ok()) return layout.status();
  const auto zero_copy = param_bool(Param::kZeroCopy);
  if (!zero_copy.ok()) return zero_copy.status();
  const std::uint64_t deadline_ns = sys().now_ns() + membership.timeout_ns;
  auto segment = join_segment(membership, *layout, members);
  if (!segment.ok()) return segment.status();
  segment_ = *segment;
  attach(membership, segment_->data, *layout, std::move(members), peers, *zero_copy);
  return wait_for_peers(deadline_ns, *this);
}

bool InprocTransport::back(int peer, std::span<std::byte> part, bool needed) noexcept {
  static_cast<void>(peer), static_cast<void>(needed);
  count_backed(part.size()); // the kernel backs pages when they are touched
  return true;
}

bool InprocTransport::locate(std::span<const std::byte> source, std::uint64_t* offset) noexcept {
  *offset = std::bit_cast<std::uintptr_t>(source.data());
  return true;
}

std::byte* InprocTransport::resolve(int peer, const Descriptor& descriptor) noexcept {
  static_cast<void>(peer);
  return std::bit_cast<std::byte*>(static_cast<std::uintptr_t>(descriptor.offset));
}

} // namespace whorl
