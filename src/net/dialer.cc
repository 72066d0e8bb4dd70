#include "net/dialer.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/descriptor_error.h"

namespace whorl {
namespace {

// Delay between the attempts at two addresses of a target. Smaller: an unreachable first choice
// costs less. Larger: a good but slow first choice wins more often.
constexpr std::uint64_t kStaggerNs = 100'000'000;
// Times after which refused connections are tried again: doubling from kFirstRetryNs to
// kLastRetryNs.
constexpr std::uint64_t kFirstRetryNs = 2'000'000;
constexpr std::uint64_t kLastRetryNs = 200'000'000;
// Time after which a target that refuses connections, although it ought to listen, is given up.
constexpr std::uint64_t kGoneNs = 100'000'000;

/// Returns whether a new attempt would meet the same failure.
bool is_final(HandshakeFailure failure) noexcept {
  return failure == HandshakeFailure::kVersion || failure == HandshakeFailure::kSecret ||
         failure == HandshakeFailure::kUser || failure == HandshakeFailure::kEncryption;
}

} // namespace

Dialer::Dialer(const MeshPlan& plan, Connected connected, MakeRoom make_room)
    : plan_(plan),
      connected_(std::move(connected)),
      make_room_(std::move(make_room)),
      started_ns_(sys().now_ns()),
      targets_(plan.targets.size()) {
  for (std::size_t t = 0; t < targets_.size(); ++t) {
    for (const SocketAddress& address : plan.targets[t].addresses) {
      Attempt& attempt = targets_[t].attempts.emplace_back();
      attempt.target = t;
      attempt.address = &address;
      attempt.due_ns = started_ns_ + (targets_[t].attempts.size() - 1) * kStaggerNs;
      attempt.retry_ns = kFirstRetryNs;
    }
  }
}

/// Returns whether some attempt at the target has seen the peer's proof, so that the others must
/// wait.
bool Dialer::Target::decided() const noexcept {
  return established || std::any_of(attempts.begin(), attempts.end(), [](const Attempt& attempt) {
           return attempt.handshake.peer_proved();
         });
}

Status Dialer::check_for_gone(std::uint64_t now) const {
  if (plan_.gone.empty() || now < started_ns_ + kGoneNs) return {};
  for (const Target& target : targets_) {
    const bool gone =
        !target.established && !target.attempts.empty() &&
        std::all_of(target.attempts.begin(), target.attempts.end(),
                    [](const Attempt& attempt) { return attempt.idle() && attempt.refused; });
    if (!gone) continue;
    std::string where;
    for (const Attempt& attempt : target.attempts) {
      where += (where.empty() ? "" : ", ") + attempt.address->text();
    }
    return Status::error(Code::kRemoteError, fmt::format("rank {}: {} refused connections: {}",
                                                         plan_.rank, where, plan_.gone));
  }
  return {};
}

std::string Dialer::describe_attempts(std::size_t target) const {
  std::string tried;
  for (const Attempt& attempt : targets_[target].attempts) {
    const std::string why = !attempt.last.ok() ? attempt.last.message()
                            : attempt.handshake.fd() >= 0
                                ? "connected, but no answer to the handshake"
                                : "no answer";
    tried += fmt::format("{}{} ({})", tried.empty() ? "" : ", ", attempt.address->text(), why);
  }
  return tried;
}

/// Names the target of an attempt and the address.
std::string Dialer::describe(const Attempt& attempt) const {
  return fmt::format("{} at {}", plan_.name_of(plan_.targets[attempt.target].rank),
                     attempt.address->text());
}

Status Dialer::start_due(std::uint64_t now) {
  for (Target& target : targets_) {
    for (Attempt& attempt : target.attempts) {
      if (attempt.idle() && attempt.due_ns <= now && !target.decided()) WHORL_TRY(start(attempt));
    }
  }
  return {};
}

Status Dialer::start(Attempt& attempt) {
  ++attempt.tries;
  Fd socket(sys().socket(attempt.address->family(), SOCK_STREAM));
  while (descriptors_used_up(socket.get()) && make_room_()) {
    socket = Fd(sys().socket(attempt.address->family(), SOCK_STREAM));
  }
  int result = socket.get();
  if (descriptors_used_up(result)) return out_of_files(result);
  if (result >= 0) {
    if (!plan_.congestion.empty()) { // best effort: the listening side has reported errors
      static_cast<void>(sys().setsockopt(result, IPPROTO_TCP, TCP_CONGESTION, plan_.congestion));
    }
    // Without an answer the attempt fails after some seconds, and is repeated; left alone, the
    // kernel would repeat it after pauses that double. No effect on unix sockets.
    static_cast<void>(sys().setsockopt(result, IPPROTO_TCP, TCP_SYNCNT, 1));
    result = sys().connect(socket.get(), attempt.address->data(), attempt.address->size());
  }
  if (result >= 0) return begin_handshake(attempt, std::move(socket));
  if (result == -EINPROGRESS) {
    attempt.connecting = std::move(socket);
  } else {
    std::string why = errno_text(result);
    if (result == -EADDRNOTAVAIL) {
      why += "; perhaps connections occupy all ports of net.ipv4.ip_local_port_range";
    }
    failed(attempt, Status::error(Code::kRemoteError, std::move(why)), result == -ECONNREFUSED);
  }
  return {};
}

Status Dialer::out_of_files(int error) const {
  return Status::error(
      Code::kSystemError,
      fmt::format("rank {} cannot open the sockets that it needs to reach {} connections: {}",
                  plan_.rank, plan_.targets.size() + plan_.expected.size(),
                  descriptor_error(error)));
}

Status Dialer::begin_handshake(Attempt& attempt, Fd socket) {
  const MeshTarget& target = plan_.targets[attempt.target];
  if (plan_.same_user) WHORL_TRY(check_user(attempt, socket));
  attempt.handshake =
      Handshake::connecting(std::move(socket), *plan_.identity,
                            {static_cast<std::uint32_t>(plan_.rank),
                             static_cast<std::uint32_t>(target.rank), target.role, target.channel},
                            plan_.encrypts);
  return step(attempt);
}

/// Returns an error if a process of another user listens at the address.
Status Dialer::check_user(const Attempt& attempt, const Fd& socket) const {
  ucred peer{};
  const int error = peer_credentials(socket.get(), &peer);
  if (error >= 0 && peer.uid == sys().user_id()) return {};
  return Status::error(
      Code::kInvalidUsage,
      fmt::format("rank {} does not connect to {}: the process that listens there is {}, "
                  "this rank runs as user {}. Without a secret only processes of one user meet: "
                  "choose another port, set WHORL_SECRET_FILE to a file of mode 0600 with the "
                  "same contents for all ranks, or WHORL_INSECURE=1 for all of them",
                  plan_.rank, describe(attempt),
                  error < 0 ? std::string("unknown")
                            : fmt::format("of user {} (pid {})", peer.uid, peer.pid),
                  sys().user_id()));
}

void Dialer::failed(Attempt& attempt, Status why, bool refused) {
  attempt.stop();
  attempt.last = std::move(why);
  attempt.refused = refused;
  attempt.due_ns = sys().now_ns() + attempt.retry_ns;
  attempt.retry_ns = std::min(2 * attempt.retry_ns, kLastRetryNs);
  // The next choice need not wait for its turn any longer.
  std::vector<Attempt>& all = targets_[attempt.target].attempts;
  const auto next =
      std::find_if(all.begin(), all.end(), [](const Attempt& other) { return other.tries == 0; });
  if (next != all.end()) next->due_ns = 0;
}

Status Dialer::connected(Attempt& attempt) {
  int error = 0;
  socklen_t size = sizeof error;
  const int result =
      sys().getsockopt(attempt.connecting.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (result < 0) error = -result;
  if (error == 0) return begin_handshake(attempt, std::move(attempt.connecting));
  failed(attempt, Status::error(Code::kRemoteError, errno_text(error)), error == ECONNREFUSED);
  return {};
}

/// Advances a handshake.
Status Dialer::step(Attempt& attempt) {
  switch (attempt.handshake.step()) {
    case Progress::kDone:
      targets_[attempt.target].established = true;
      connected_(attempt.target, attempt.handshake.take(), attempt.address->text());
      attempt.handshake = Handshake();
      stop_others(attempt);
      return {};
    case Progress::kFailed: {
      const HandshakeFailure why = attempt.handshake.failure();
      const Status status = attempt.handshake.status();
      failed(attempt, status, false);
      if (!is_final(why)) return {};
      return status.with_context(
          fmt::format("rank {} cannot connect to {}", plan_.rank, describe(attempt)));
    }
    default:
      if (attempt.handshake.peer_proved()) stop_others(attempt);
      return {};
  }
}

void Dialer::stop_others(const Attempt& winner) noexcept {
  for (Attempt& other : targets_[winner.target].attempts) {
    if (&other != &winner) other.stop();
  }
}

void Dialer::add_to(std::vector<pollfd>& fds, std::uint64_t* wake_ns) {
  // Only sockets that exist: the system refuses to poll more entries than there may be files.
  polled_.clear();
  for (Target& target : targets_) {
    for (Attempt& attempt : target.attempts) {
      if (attempt.idle()) {
        if (!target.decided()) *wake_ns = std::min(*wake_ns, attempt.due_ns);
        continue;
      }
      polled_.push_back(&attempt);
      if (attempt.connecting.valid()) {
        fds.push_back({attempt.connecting.get(), POLLOUT, 0});
      } else {
        fds.push_back({attempt.handshake.fd(), attempt.handshake.events(), 0});
      }
    }
  }
}

Status Dialer::step(std::span<const pollfd> ready) {
  for (std::size_t i = 0; i < polled_.size(); ++i) {
    if (ready[i].revents == 0) continue;
    if (polled_[i]->connecting.valid()) {
      WHORL_TRY(connected(*polled_[i]));
    } else if (polled_[i]->handshake.fd() >= 0) { // not stopped by a winner in this round
      WHORL_TRY(step(*polled_[i]));
    }
  }
  return {};
}

} // namespace whorl
