#include "node/host_links.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/descriptor_error.h"

namespace whorl {
namespace {

/// Time that ranks wait longer than the lowest rank, which finds out at the deadline, or half a
/// second after it (MeshPlan::check), which ranks are missing and sends the others an error with
/// their names.
constexpr std::uint64_t kGraceNs = 1'000'000'000;

/// Waiter that sleeps until a link that is not done yet has something to read.
class LinkWaiter final : public Waiter {
 public:
  LinkWaiter(const std::vector<MeshLink>& links, const std::vector<bool>& done)
      : links_(links), done_(done), polled_(links.size()) {}
  void block(std::uint64_t max_ns) noexcept override {
    for (std::size_t i = 0; i < links_.size(); ++i) {
      polled_[i] = {.fd = done_[i] ? -1 : links_[i].socket.get(), .events = POLLIN, .revents = 0};
    }
    static_cast<void>(sys().poll(polled_, max_ns));
  }

 private:
  const std::vector<MeshLink>& links_;
  const std::vector<bool>& done_;
  std::vector<pollfd> polled_;
};

} // namespace

Status HostLinks::lost(int rank, int error) const {
  const bool own_want = descriptors_used_up(error) || error == -ENOMEM || error == -ENOBUFS;
  if (own_want) {
    return Status::error(
        Code::kSystemError,
        fmt::format("rank {} cannot exchange descriptors with {} to set up shared memory: {}",
                    membership_.rank, membership_.describe(rank), descriptor_error(error)));
  }
  // A rank that gives up closes its sockets, and then says why: that is the better reason.
  constexpr std::uint64_t kExplainNs = 50'000'000, kAskAgainNs = 5'000'000;
  const std::uint64_t until_ns = sys().now_ns() + kExplainNs;
  while (membership_.check_others && sys().now_ns() < until_ns) {
    WHORL_TRY(membership_.check_others());
    sys().sleep_ns(kAskAgainNs);
  }
  return Status::error(
      Code::kRemoteError,
      fmt::format("{} {} while it set up shared memory with rank {}", membership_.describe(rank),
                  error == 0 ? std::string("died or gave up")
                             : fmt::format("cannot be talked to ({})", std::strerror(-error)),
                  membership_.rank));
}

Status HostLinks::connect() {
  MeshPlan mesh;
  mesh.rank = membership_.rank;
  mesh.identity = &membership_.identity;
  mesh.deadline_ns = plan_.deadline_ns;
  mesh.comm_error = membership_.comm_error;
  mesh.check = membership_.check_others;
  mesh.describe = [this](int rank) { return membership_.describe(rank); };
  if (leads()) {
    for (const int rank : plan_.members) {
      if (rank == membership_.rank) continue;
      mesh.expected.push_back({.rank = rank, .role = SocketRole::kShm, .channel = 0});
    }
  } else {
    const int leader = plan_.members.front();
    const PeerInfo::Address& address = membership_.info(leader).addresses[plan_.index];
    const SocketAddress target =
        SocketAddress::decode(std::span(address.bytes).first<SocketAddress::kEncodedBytes>());
    if (target.family() != AF_UNIX) {
      return Status::error(Code::kInternalError,
                           fmt::format("the info of {} names no unix socket for shared memory",
                                       membership_.describe(leader)));
    }
    mesh.targets.push_back(
        {.rank = leader, .role = SocketRole::kShm, .channel = 0, .addresses = {target}});
  }
  auto links = connect_mesh(std::span(plan_.listener, 1), mesh, &links_);
  if (!links.ok()) return links.status();
  links_ = std::move(*links);
  return {};
}

Status HostLinks::check_user(const MeshLink& link, int* pid) const {
  ucred peer{};
  socklen_t size = sizeof peer;
  const int error = sys().getsockopt(link.socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
  if (error < 0) return lost(link.rank, error);
  if (peer.uid != sys().user_id()) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("{} runs as user {}, rank {} as user {}; ranks that share memory must run as "
                    "the same user, or leave shm out of WHORL_TRANSPORTS",
                    membership_.describe(link.rank), peer.uid, membership_.rank, sys().user_id()));
  }
  *pid = peer.pid;
  return {};
}

Status HostLinks::advance(const char* doing, const LinkStep& step_of) {
  std::vector<bool> done(links_.size(), false);
  Status broken;
  const auto step = [&] {
    Progress all = Progress::kDone;
    for (std::size_t i = 0; i < links_.size(); ++i) {
      if (done[i]) continue;
      int error = 0;
      const Progress progress = step_of(i, links_[i].socket.get(), &error);
      if (progress == Progress::kFailed) {
        broken = lost(links_[i].rank, error);
        return progress;
      }
      done[i] = progress == Progress::kDone;
      if (!done[i]) all = Progress::kIdle;
    }
    return all;
  };
  LinkWaiter waiter(links_, done);
  const std::uint64_t deadline = plan_.deadline_ns + (leads() ? 0 : kGraceNs);
  const std::uint64_t now = sys().now_ns();
  // The wait does not yield, which would take the core from the one rank that the others wait for.
  WaitPolicy policy{.timeout_ns = deadline > now ? deadline - now : 1, .spins = 2, .yield_ns = 0};
  // A message ends the sleep early. The sleep is long, because with hundreds of ranks those that
  // wake in vain would keep the lowest rank from its core.
  constexpr std::uint64_t kBlockNs = 100'000'000;
  if (!leads()) policy.block_ns = policy.first_block_ns = kBlockNs;
  const WaitResult result = wait_until(step, policy, *membership_.comm_error, waiter);
  WHORL_TRY(broken);
  if (result == WaitResult::kReady) return {};
  if (result == WaitResult::kFailed) return membership_.comm_error->status();
  std::string names;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (done[i]) continue;
    names += (names.empty() ? "" : ", ") + membership_.describe(links_[i].rank);
  }
  return Status::error(
      Code::kRemoteError,
      fmt::format("rank {} timed out while it {}: no answer within {} ms from {}; look whether it "
                  "runs or is stopped",
                  membership_.rank, doing, membership_.timeout_ns / 1'000'000, names));
}

} // namespace whorl
