#include "node/segment.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "base/descriptor_error.h"
#include "node/fd_message.h"
#include "node/host_links.h"
#include "node/offer.h"

namespace whorl {
namespace {

/// One rank's part of the rendezvous.
class Meeting {
 public:
  explicit Meeting(const ShmMeetingPlan& plan)
      : plan_(plan),
        membership_(*plan.membership),
        processes_(processes_of(membership_, plan.members)),
        links_(plan) {
    std::unordered_map<std::uint64_t, int> place_of;
    for (const int lowest : processes_) {
      place_of.emplace(membership_.info(lowest).process_key, static_cast<int>(place_of.size()));
    }
    places_.resize(membership_.peers.size(), 0);
    for (const int rank : plan.members) {
      places_[static_cast<std::size_t>(rank)] = place_of.at(membership_.info(rank).process_key);
    }
  }
  Result<ShmMeeting> run();

 private:
  /// Whether the process of rank `a` watches the process of rank `b`.
  bool watches(int a, int b) const;

  Status collect_hellos();
  Status read_hello(int rank, FdMessageReceiver& received);
  bool has_pidfd(int rank) const;
  Status open_pidfds();
  Status make_segment();
  Status send_offers(const Status& failure);
  Status receive_offer();
  Status send_hello();
  Status read_offer(std::span<const std::byte> body, std::vector<Fd>& fds);
  Status malformed(int rank) const;

  /// Sends or receives one message on every link: `message_of(i)` for link i.
  template <class MessageOf>
  Status for_each_link(const char* doing, MessageOf&& message_of) {
    return links_.advance(doing, [&](std::size_t i, int socket, int* error) {
      auto& message = message_of(i);
      const Progress progress = message.step(socket);
      if (progress == Progress::kFailed) *error = message.error();
      return progress;
    });
  }

  const ShmMeetingPlan& plan_;
  const Membership& membership_;
  const std::vector<int> processes_; ///< lowest member of each process, ascending
  std::vector<int> places_;          ///< [rank]: index of the rank's process in processes_
  HostLinks links_;
  Fd own_pidfd_; ///< pidfd of the lowest rank's own process; invalid where the kernel refuses
  ShmMeeting result_;
};

bool Meeting::watches(int a, int b) const {
  if (processes_.size() <= kMaxProcesses) return true;
  const int distance = places_[static_cast<std::size_t>(a)] - places_[static_cast<std::size_t>(b)];
  return std::has_single_bit(static_cast<unsigned>(std::abs(distance)));
}

Status Meeting::malformed(int rank) const {
  return Status::error(
      Code::kInternalError,
      fmt::format("{} offers shared memory in a form that rank {} does not know; do "
                  "all ranks use the same version of whorl?",
                  membership_.describe(rank), membership_.rank));
}

Status Meeting::collect_hellos() {
  // First, because a rank that finds another user here hangs up.
  for (const MeshLink& link : links_.all()) {
    int pid = 0;
    WHORL_TRY(links_.check_user(link, &pid));
  }
  std::vector<FdMessageReceiver> receivers(links_.all().size());
  WHORL_TRY(for_each_link(
      "collected the heaps of its host", [&](std::size_t i) -> auto& { return receivers[i]; }));
  for (std::size_t i = 0; i < links_.all().size(); ++i) {
    WHORL_TRY(read_hello(links_.all()[i].rank, receivers[i]));
  }
  return {};
}

/// Takes the descriptors of a rank's hello. One heap of each process is kept.
Status Meeting::read_hello(int rank, FdMessageReceiver& received) {
  const auto hello = NodeHello::decode(received.body(), received.fds().size());
  if (!hello) return malformed(rank);
  if (hello->heap && !membership_.same_process(rank, membership_.rank) &&
      std::binary_search(processes_.begin(), processes_.end(), rank)) {
    result_.heaps.push_back({.rank = rank, .fd = std::move(received.fds()[0])});
  }
  return {};
}

/// Returns whether this rank has a pidfd for the process of another one.
bool Meeting::has_pidfd(int rank) const {
  return std::any_of(result_.pidfds.begin(), result_.pidfds.end(),
                     [&](const ProcessFd& p) { return membership_.same_process(p.rank, rank); });
}

/// Checks the user of each link, and opens a pidfd for each process by the pid that the kernel
/// gives for the link's peer, and one for this process.
Status Meeting::open_pidfds() {
  own_pidfd_.reset(
      sys().pidfd_open(static_cast<int>(membership_.info(membership_.rank).process_id)));
  for (const MeshLink& link : links_.all()) {
    int pid = 0;
    WHORL_TRY(links_.check_user(link, &pid));
    if (!has_pidfd(link.rank) && !membership_.same_process(link.rank, membership_.rank) &&
        pid > 0) {
      const int fd = sys().pidfd_open(pid);
      if (descriptors_used_up(fd)) {
        return Status::error(Code::kSystemError,
                             fmt::format("rank {} cannot watch the processes of its host: {}",
                                         membership_.rank, descriptor_error(fd)));
      }
      if (fd >= 0) result_.pidfds.push_back({.rank = link.rank, .fd = Fd(fd)});
    }
  }
  return {};
}

Status Meeting::make_segment() {
  auto segment = ShmSegment::create("whorl-shm", plan_.segment.bytes);
  if (!segment.ok()) return segment.status();
  if (const int error = segment->allocate(0, plan_.segment.backed_bytes); error < 0) {
    return Status::error(Code::kSystemError,
                         fmt::format("cannot get {} bytes of shared memory: {}",
                                     plan_.segment.backed_bytes, std::strerror(-error)));
  }
  plan_.segment.stamp(segment->data());
  result_.segment = std::move(*segment);
  return {};
}

/// Sends every rank the segment and its descriptors, or `failure`, which is then returned. If a
/// rank has hung up, the ranks after it get that as the reason, and so does the caller.
Status Meeting::send_offers(const Status& failure) {
  std::vector<FdMessageSender> senders;
  for (const MeshLink& link : links_.all()) {
    NodeOffer offer;
    std::vector<int> fds;
    if (!failure.ok()) {
      offer = NodeOffer::failure(failure.message());
    } else {
      const auto add = [&](FdKind kind, int rank, int fd) {
        if (fd < 0 || membership_.same_process(rank, link.rank)) return;
        offer.entries.push_back({.kind = kind, .rank = rank});
        fds.push_back(fd);
      };
      fds.push_back(result_.segment.fd());
      add(FdKind::kHeap, membership_.rank, plan_.heap_fd);
      if (has_pidfd(link.rank)) add(FdKind::kPidfd, membership_.rank, own_pidfd_.get());
      add(FdKind::kOutbox, membership_.rank, plan_.outbox_fd);
      for (const ProcessFd& heap : result_.heaps) add(FdKind::kHeap, heap.rank, heap.fd.get());
      for (const ProcessFd& pidfd : result_.pidfds) {
        if (watches(link.rank, pidfd.rank)) add(FdKind::kPidfd, pidfd.rank, pidfd.fd.get());
      }
    }
    senders.emplace_back(offer.encode(), std::move(fds));
  }
  Status reason = failure; // or that of the first link that breaks
  const Status sent =
      links_.advance("gave shared memory to its host", [&](std::size_t i, int socket, int* error) {
        FdMessageSender& sender = senders[i];
        if (!reason.ok() && !sender.begun()) {
          sender = FdMessageSender(NodeOffer::failure(reason.message()).encode(), {});
        }
        const Progress progress = sender.step(socket);
        if (progress != Progress::kFailed) return progress;
        *error = sender.error();
        if (reason.ok()) reason = links_.lost(links_.all()[i].rank, *error);
        return Progress::kDone; // a rank that has hung up does not keep the reason from the others
      });
  return reason.ok() ? sent : reason;
}

Status Meeting::send_hello() {
  int pid = 0;
  WHORL_TRY(links_.check_user(links_.all().front(), &pid));
  const NodeHello hello{.heap = plan_.heap_fd >= 0};
  std::vector<int> fds;
  if (hello.heap) fds.push_back(plan_.heap_fd);
  FdMessageSender sender(hello.encode(), std::move(fds));
  Status sent = for_each_link(
      "handed over its heap", [&](std::size_t) -> auto& { return sender; });
  if (sent.ok()) return sent;
  // The lowest rank may have given up, and have said why before it hung up.
  Status reason = receive_offer();
  return reason.ok() ? sent : reason;
}

Status Meeting::receive_offer() {
  FdMessageReceiver receiver;
  WHORL_TRY(for_each_link(
      "waited for shared memory", [&](std::size_t) -> auto& { return receiver; }));
  return read_offer(receiver.body(), receiver.fds());
}

Status Meeting::read_offer(std::span<const std::byte> body, std::vector<Fd>& fds) {
  const int leader = plan_.members.front();
  const auto offer = NodeOffer::decode(body, fds.size(), plan_.members);
  if (!offer) return malformed(leader);
  if (offer->failed) {
    return Status::error(Code::kRemoteError,
                         fmt::format("{} cannot set up shared memory: {}",
                                     membership_.describe(leader), offer->reason));
  }
  auto segment = ShmSegment::open(std::move(fds.front()), plan_.segment.bytes);
  if (!segment.ok()) return segment.status().with_context(membership_.describe(leader));
  WHORL_TRY(plan_.segment.check(segment->data()));
  result_.segment = std::move(*segment);
  for (std::size_t i = 0; i < offer->entries.size(); ++i) {
    const auto& [kind, rank] = offer->entries[i];
    Fd& fd = fds[i + 1];
    if (kind == FdKind::kOutbox) {
      result_.outbox = std::move(fd);
    } else {
      auto& all = kind == FdKind::kHeap ? result_.heaps : result_.pidfds;
      all.push_back({.rank = rank, .fd = std::move(fd)});
    }
  }
  return {};
}

Result<ShmMeeting> Meeting::run() {
  Status status = links_.connect();
  if (links_.leads()) {
    if (status.ok()) status = collect_hellos();
    if (status.ok()) status = open_pidfds();
    if (status.ok()) status = make_segment();
    WHORL_TRY(send_offers(status));
  } else {
    WHORL_TRY(status);
    WHORL_TRY(send_hello());
    WHORL_TRY(receive_offer());
  }
  // The sockets of processes that have pidfds for each other are closed at both ends, because each
  // would be one descriptor more for each communicator. Only such processes have got the pidfd of
  // the lowest rank.
  for (MeshLink& link : links_.all()) {
    const bool both = has_pidfd(link.rank) && (!links_.leads() || own_pidfd_.valid());
    if (both || membership_.same_process(link.rank, membership_.rank)) continue;
    result_.sockets.push_back({.rank = link.rank, .fd = link.socket.take()});
  }
  return std::move(result_);
}

} // namespace

std::vector<int> processes_of(const Membership& membership, std::span<const int> members) {
  std::vector<int> lowest;
  std::unordered_set<std::uint64_t> known;
  for (const int rank : members) {
    if (known.insert(membership.info(rank).process_key).second) {
      lowest.push_back(rank);
    }
  }
  return lowest;
}

Result<ShmMeeting> meet(const ShmMeetingPlan& plan) { return Meeting(plan).run(); }

} // namespace whorl
