// The decision who carries out an operation of several processes, from what all ranks have posted.
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "device/ipc/group.h"
#include "device/kernel/blocks.h"

namespace whorl {

Progress DevicePeers::decide(Operation& operation, std::uint64_t timeout_ns) {
  bool all = true, on_host = false;
  int left = -1; // a rank that has destroyed its communicator
  for (int rank = 0; rank < members_.nranks; ++rank) {
    DevicePost& post = posts_[static_cast<std::size_t>(rank)];
    if (rank == members_.rank) {
      post = operation.post;
      continue;
    }
    const auto call = board_.call(rank, operation.number, &post);
    all = all && call != SharedState::Call::kNone;
    on_host = on_host || call == SharedState::Call::kHost;
    if (call == SharedState::Call::kLeft) left = rank;
  }
  if (left >= 0) {
    if (board_.stop_words().is_set()) return Progress::kIdle; // as below
    return end(
        operation, false,
        refuse_captured(operation, members_.describe(left) + " has destroyed its communicator"));
  }
  if (on_host) {
    return end(operation, false, refuse_captured(operation, "a rank has its buffers on the host"));
  }
  if (!all) return Progress::kIdle;
  if (Status status = check_alike(operation); !status.ok()) {
    return end(operation, false, std::move(status));
  }
  // A rank that has failed waits for no other rank any more, although its posts are still there;
  // the error of that rank is on its way.
  if (board_.stop_words().is_set()) return Progress::kIdle;
  operation.path = path_of(operation);
  if (leader_ != nullptr) leader_->release(replays_.released());
  if (const std::string why = why_not_captured(operation); !why.empty()) {
    return leave_to_host(operation, why);
  }
  switch (operation.path) {
    case DevicePath::kHost:
      return end(operation, false);
    case DevicePath::kSchedule:
      if (Status status = is_uneven() ? check_blocks(operation) : Status(); !status.ok()) {
        return end(operation, false, std::move(status));
      }
      return schedules_open_ ? queue(operation, timeout_ns) : offer(operation);
    case DevicePath::kFused:
      if (leader_ != nullptr) leader_->begin(operation.number, posts_);
      operation.state = Operation::State::kMapping;
      return Progress::kAdvanced;
    case DevicePath::kBarrier:
      break;
  }
  return queue(operation, timeout_ns);
}

/// Returns whether blocks of any rank may differ in size, by the posts.
bool DevicePeers::is_uneven() const noexcept {
  return std::any_of(posts_.begin(), posts_.end(),
                     [](const DevicePost& post) { return post.uneven != 0; });
}

/// Checks that other ranks expect as much of this rank as it sends to them, and the reverse. A
/// difference between two other ranks is found by those.
Status DevicePeers::check_blocks(const Operation& operation) const {
  const auto n = static_cast<std::size_t>(members_.nranks);
  const auto own = static_cast<std::size_t>(members_.rank);
  if (!may_meet_blocks(operation.request)) { // a call of equal fingerprint cannot have blocks
    return Status::error(Code::kInternalError,
                         fmt::format("another rank sent a malformed description of its call in {}",
                                     describe(operation.request)));
  }
  const Blocks mine = blocks_of(operation.request, members_.rank, members_.nranks);
  std::vector<BlockPlace> places(2 * n);
  for (std::size_t r = 0; r < n; ++r) {
    if (r == own) continue;
    // A rank without blocks calls the plain all-gather.
    BlockPlace sent{.count = operation.request.count}, expected = sent;
    if (posts_[r].uneven != 0) {
      board_.blocks(static_cast<int>(r), operation.number, places);
      sent = places[own];
      expected = places[n + own];
    }
    WHORL_TRY(check_count(operation.request, own, r, mine.sends[r].count, expected.count));
    WHORL_TRY(check_count(operation.request, r, own, sent.count, mine.receives[r].count));
  }
  return {};
}

/// Chooses from the posts of all ranks, and alike on all.
DevicePath DevicePeers::path_of(const Operation& operation) {
  const bool barrier = operation.request.collective == Collective::kBarrier;
  if (!barrier && !devices_known_) learn_devices();
  DeviceFacts facts = facts_;
  facts.on_device = true;
  facts.barrier = barrier;
  facts.shared = std::all_of(posts_.begin(), posts_.end(),
                             [](const DevicePost& post) { return post.shared != 0; });
  facts.uneven_sums = is_uneven() && reduces(operation.request.collective);
  return choose_device_path(facts);
}

/// Learns the facts that stay the same from the posts of the first operation with buffers.
void DevicePeers::learn_devices() {
  std::vector<DevicePlace> places;
  facts_.together = true;
  std::set<std::uint64_t> processes; // kernels of one process might wait for each other's launches
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const DevicePost& post = posts_[static_cast<std::size_t>(rank)];
    places.push_back({members_.info(rank).process_key, post.device, post.context});
    facts_.together = facts_.together && post.together != 0 &&
                      processes.insert(members_.info(rank).process_key).second;
    if (post.algo == DeviceAlgo::kFused) facts_.algo = DeviceAlgo::kFused;
    if (post.algo == DeviceAlgo::kSchedule && facts_.algo == DeviceAlgo::kAny) {
      facts_.algo = DeviceAlgo::kSchedule;
    }
  }
  facts_.layout = layout_of(places);
  devices_known_ = true;
}

/// Whether the devices are such that the host carries out all operations like `request`, unless it
/// is a barrier.
bool DevicePeers::left_to_host(const Request& request) const noexcept {
  DeviceFacts facts = facts_;
  facts.on_device = facts.shared = true;
  facts.uneven_sums = has_uneven_sums(request);
  return devices_known_ && choose_device_path(facts) == DevicePath::kHost;
}

Status DevicePeers::check_alike(const Operation& operation) const {
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const DevicePost& post = posts_[static_cast<std::size_t>(rank)];
    if ((post.captured != 0) != (operation.post.captured != 0)) {
      const bool own = operation.post.captured != 0;
      return Status::error(
          Code::kInvalidUsage,
          fmt::format("{} captures {} into a graph, {} does not. All ranks must",
                      names_[static_cast<std::size_t>(own ? members_.rank : rank)],
                      describe(operation.request),
                      names_[static_cast<std::size_t>(own ? rank : members_.rank)]));
    }
    const Fingerprint& other = post.call;
    if (other == operation.post.call) continue;
    const auto number = static_cast<std::uint32_t>(operation.number);
    const Fingerprint& own = operation.post.call;
    return Status::error(
        Code::kInvalidUsage,
        describe_disagreement(
            {names_[static_cast<std::size_t>(members_.rank)], describe(own.numbered(number)), own},
            {names_[static_cast<std::size_t>(rank)], describe(other.numbered(number)), other}));
  }
  return {};
}

} // namespace whorl
