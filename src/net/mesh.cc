#include "net/mesh.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "net/acceptor.h"

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
// Time between two looks at the communicator's error; with hundreds of ranks each look costs a time
// slice.
constexpr std::uint64_t kLookNs = 100'000'000;
// Time between two questions whether other ranks have given up.
constexpr std::uint64_t kCheckNs = 40'000'000;

/// Attempts to connect to one address of one target.
struct Attempt {
  std::size_t target = 0;
  const SocketAddress* address = nullptr;
  std::uint64_t due_ns = 0; ///< time to connect next, while there is neither socket nor handshake
  std::uint64_t retry_ns = kFirstRetryNs;
  Fd connecting;
  Handshake handshake;  ///< handshake that owns the socket once it is connected
  Status last;          ///< reason why the last try failed
  bool refused = false; ///< true: because no process listens there
  int tries = 0;
  bool idle() const noexcept { return !connecting.valid() && handshake.fd() < 0; }
  void stop() noexcept {
    connecting.reset();
    handshake = Handshake();
  }
};

class MeshLoop {
 public:
  MeshLoop(std::span<const Fd> listeners, const MeshPlan& plan)
      : plan_(plan), acceptor_(open_listeners(listeners, plan), rules()) {}

  Result<std::vector<MeshLink>> run() {
    prepare();
    while (open_ > 0) {
      const std::uint64_t now = sys().now_ns();
      if (plan_.comm_error != nullptr && plan_.comm_error->is_set())
        return plan_.comm_error->status();
      if (plan_.check && now >= next_check_ns_) {
        next_check_ns_ = now + kCheckNs;
        WHORL_TRY(plan_.check());
      }
      if (now >= plan_.deadline_ns) return timed_out();
      if (!plan_.gone.empty() && now >= started_ns_ + kGoneNs) WHORL_TRY(check_for_gone());
      if (fatal_.ok()) start_due(now);
      if (!fatal_.ok()) return fatal_;
      if (open_ == 0) break; // the last handshake needed no waiting: nothing would end a poll
      poll_all(now);
      if (!fatal_.ok()) return fatal_;
    }
    for (MeshLink& link : links_) { // refused where the socket is not TCP
      static_cast<void>(sys().setsockopt(link.socket.get(), IPPROTO_TCP, TCP_NODELAY, 1));
    }
    return std::move(links_);
  }

  /// Returns the connections that were made, after a failed run().
  std::vector<MeshLink> made() {
    std::erase_if(links_, [](const MeshLink& link) { return !link.socket.valid(); });
    return std::move(links_);
  }

 private:
  void prepare() {
    const std::uint64_t now = started_ns_ = sys().now_ns();
    next_check_ns_ = now + kCheckNs;
    for (std::size_t t = 0; t < plan_.targets.size(); ++t) {
      const MeshTarget& target = plan_.targets[t];
      links_.push_back({target.rank, target.role, target.channel, StreamSocket(), ""});
      first_attempt_.push_back(attempts_.size());
      for (std::size_t a = 0; a < target.addresses.size(); ++a) {
        Attempt& attempt = attempts_.emplace_back();
        attempt.target = t;
        attempt.address = &target.addresses[a];
        attempt.due_ns = now + a * kStaggerNs;
      }
    }
    first_attempt_.push_back(attempts_.size());
    for (const MeshExpected& expected : plan_.expected) {
      links_.push_back({expected.rank, expected.role, expected.channel, StreamSocket(), ""});
    }
    open_ = links_.size();
  }

  /// Returns an error if every address of a target refuses connections.
  Status check_for_gone() {
    for (std::size_t t = 0; t < plan_.targets.size(); ++t) {
      const std::span<Attempt> attempts = attempts_at(t);
      const bool gone = !established(t) && !attempts.empty() &&
                        std::all_of(attempts.begin(), attempts.end(), [](const Attempt& attempt) {
                          return attempt.idle() && attempt.refused;
                        });
      if (!gone) continue;
      std::string where;
      for (const Attempt& attempt : attempts) {
        where += (where.empty() ? "" : ", ") + attempt.address->text();
      }
      return Status::error(Code::kRemoteError, fmt::format("rank {}: {} refused connections: {}",
                                                           plan_.rank, where, plan_.gone));
    }
    return {};
  }

  std::string describe(int rank) const {
    return plan_.describe ? plan_.describe(rank) : fmt::format("rank {}", rank);
  }

  bool established(std::size_t target) const { return links_[target].socket.valid(); }

  /// Returns whether some attempt at the target has seen the peer's proof, so that the others must
  /// wait.
  bool decided(std::size_t target) const {
    if (established(target)) return true;
    for (std::size_t a = first_attempt_[target]; a < first_attempt_[target + 1]; ++a) {
      if (attempts_[a].handshake.peer_proved()) return true;
    }
    return false;
  }

  /// Returns the attempts at one target.
  std::span<Attempt> attempts_at(std::size_t target) {
    return std::span(attempts_).subspan(first_attempt_[target],
                                        first_attempt_[target + 1] - first_attempt_[target]);
  }

  void start_due(std::uint64_t now) {
    for (Attempt& attempt : attempts_) {
      if (attempt.idle() && attempt.due_ns <= now && !decided(attempt.target)) start(attempt);
    }
  }

  void start(Attempt& attempt) {
    ++attempt.tries;
    Fd socket(sys().socket(attempt.address->family(), SOCK_STREAM));
    while ((socket.get() == -EMFILE || socket.get() == -ENFILE) && acceptor_.make_room()) {
      socket = Fd(sys().socket(attempt.address->family(), SOCK_STREAM));
    }
    int result = socket.get();
    if (result == -EMFILE || result == -ENFILE) return out_of_files(result);
    if (result >= 0) {
      if (!plan_.congestion.empty()) { // best effort: the listening side has reported errors
        static_cast<void>(sys().setsockopt(result, IPPROTO_TCP, TCP_CONGESTION, plan_.congestion));
      }
      result = sys().connect(socket.get(), attempt.address->data(), attempt.address->size());
    }
    if (result == -EINPROGRESS) {
      attempt.connecting = std::move(socket);
    } else if (result >= 0) {
      begin_handshake(attempt, std::move(socket));
    } else {
      failed(attempt, Status::error(Code::kRemoteError, errno_text(result)));
      attempt.refused = result == -ECONNREFUSED;
    }
  }

  void out_of_files(int error) {
    fatal_ = Status::error(
        Code::kSystemError,
        fmt::format("rank {} cannot open the sockets that it needs to reach {} connections: {}; "
                    "raise the limit on open files (ulimit -n)",
                    plan_.rank, links_.size(), errno_text(error)));
  }

  void begin_handshake(Attempt& attempt, Fd socket) {
    const MeshTarget& target = plan_.targets[attempt.target];
    if (plan_.same_user && !check_user(attempt, socket)) return;
    attempt.handshake = Handshake::connecting(
        std::move(socket), *plan_.identity,
        {static_cast<std::uint32_t>(plan_.rank), static_cast<std::uint32_t>(target.rank),
         target.role, target.channel},
        plan_.encrypts);
    step(attempt);
  }

  /// Returns false, and sets fatal_, if a process of another user listens there.
  bool check_user(const Attempt& attempt, const Fd& socket) {
    ucred peer{};
    const int error = peer_credentials(socket.get(), &peer);
    if (error >= 0 && peer.uid == sys().user_id()) return true;
    fatal_ = Status::error(
        Code::kInvalidUsage,
        fmt::format("rank {} does not connect to {} at {}: the process that listens there is {}, "
                    "this rank runs as user {}. Without a secret only processes of one user meet: "
                    "choose another port, set WHORL_SECRET_FILE to a file of mode 0600 with the "
                    "same contents for all ranks, or WHORL_INSECURE=1 for all of them",
                    plan_.rank, describe(plan_.targets[attempt.target].rank),
                    attempt.address->text(),
                    error < 0 ? std::string("unknown")
                              : fmt::format("of user {} (pid {})", peer.uid, peer.pid),
                    sys().user_id()));
    return false;
  }

  void failed(Attempt& attempt, Status why) {
    attempt.stop();
    attempt.last = std::move(why);
    attempt.refused = false;
    attempt.due_ns = sys().now_ns() + attempt.retry_ns;
    attempt.retry_ns = std::min(2 * attempt.retry_ns, kLastRetryNs);
    // The next choice need not wait for its turn any longer.
    for (Attempt& other : attempts_at(attempt.target)) {
      if (other.tries == 0) {
        other.due_ns = 0;
        break;
      }
    }
  }

  void connected(Attempt& attempt) {
    int error = 0;
    socklen_t size = sizeof error;
    const int result =
        sys().getsockopt(attempt.connecting.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (result < 0) error = -result;
    if (error != 0) {
      failed(attempt, Status::error(Code::kRemoteError, errno_text(error)));
      attempt.refused = error == ECONNREFUSED;
    } else {
      begin_handshake(attempt, std::move(attempt.connecting));
    }
  }

  void step(Attempt& attempt) {
    const MeshTarget& target = plan_.targets[attempt.target];
    switch (attempt.handshake.step()) {
      case Progress::kDone: {
        MeshLink& link = links_[attempt.target];
        link.socket = attempt.handshake.take();
        link.via = attempt.address->text();
        attempt.handshake = Handshake();
        --open_;
        stop_others(attempt);
        break;
      }
      case Progress::kFailed: {
        const HandshakeFailure why = attempt.handshake.failure();
        const Status status = attempt.handshake.status();
        failed(attempt, status);
        // A new attempt would meet the same failure.
        if (why == HandshakeFailure::kVersion || why == HandshakeFailure::kSecret ||
            why == HandshakeFailure::kUser || why == HandshakeFailure::kEncryption) {
          fatal_ = status.with_context(fmt::format("rank {} cannot connect to {} at {}", plan_.rank,
                                                   describe(target.rank), attempt.address->text()));
        }
        break;
      }
      default:
        if (attempt.handshake.peer_proved()) stop_others(attempt);
    }
  }

  void stop_others(const Attempt& winner) {
    for (Attempt& other : attempts_at(winner.target)) {
      if (&other != &winner) other.stop();
    }
  }

  void poll_all(std::uint64_t now) {
    std::uint64_t wake_ns = plan_.deadline_ns;
    if (plan_.comm_error != nullptr) wake_ns = std::min(wake_ns, now + kLookNs);
    if (plan_.check) wake_ns = std::min(wake_ns, next_check_ns_);
    // Only sockets that exist: the system refuses to poll more entries than there may be files.
    fds_.clear();
    polled_.clear();
    for (Attempt& attempt : attempts_) {
      if (attempt.idle()) {
        if (!decided(attempt.target)) wake_ns = std::min(wake_ns, attempt.due_ns);
        continue;
      }
      polled_.push_back(&attempt);
      if (attempt.connecting.valid()) {
        fds_.push_back({attempt.connecting.get(), POLLOUT, 0});
      } else {
        fds_.push_back({attempt.handshake.fd(), attempt.handshake.events(), 0});
      }
    }
    acceptor_.add_to(fds_, &wake_ns);
    static_cast<void>(sys().poll(fds_, wake_ns > now ? wake_ns - now : 0));

    for (std::size_t i = 0; i < polled_.size() && fatal_.ok(); ++i) {
      if (fds_[i].revents == 0) continue;
      if (polled_[i]->connecting.valid()) {
        connected(*polled_[i]);
      } else if (polled_[i]->handshake.fd() >= 0) { // not stopped by a winner in this round
        step(*polled_[i]);
      }
    }
    const Status accepted = acceptor_.step(std::span(fds_).subspan(polled_.size()));
    if (fatal_.ok()) fatal_ = accepted;
  }

  static std::vector<int> open_listeners(std::span<const Fd> listeners, const MeshPlan& plan) {
    std::vector<int> fds;
    for (const Fd& listener : listeners) {
      if (listener.valid() && !plan.expected.empty()) fds.push_back(listener.get());
    }
    return fds;
  }

  AcceptorRules rules() {
    return {
        .identity = plan_.identity,
        .rank = static_cast<std::uint32_t>(plan_.rank),
        .same_user = false,
        .encrypts = plan_.encrypts,
        .name = fmt::format("rank {}", plan_.rank),
        .judge =
            [this](const ConnectionName& name) {
              return find_expected(name) == SIZE_MAX ? HandshakeFailure::kName
                                                     : HandshakeFailure::kNone;
            },
        .awaited = [this] { return open_; },
        .welcome =
            [this](const ConnectionName& name, const decltype(Identity::job)&,
                   StreamSocket socket) {
              // A peer makes a second connection only after the first has broken: the newer one
              // counts.
              MeshLink& link = links_[plan_.targets.size() + find_expected(name)];
              if (!link.socket.valid()) --open_;
              link.socket = std::move(socket);
            },
        .disagree =
            [this](const ConnectionName& name, const decltype(Identity::job)&, const Status& why) {
              if (!fatal_.ok()) return;
              fatal_ = why.with_context(fmt::format("rank {} does not let {} connect", plan_.rank,
                                                    describe(static_cast<int>(name.from))));
            }};
  }

  std::size_t find_expected(const ConnectionName& name) const {
    for (std::size_t i = 0; i < plan_.expected.size(); ++i) {
      const MeshExpected& expected = plan_.expected[i];
      if (static_cast<std::uint32_t>(expected.rank) == name.from && expected.role == name.role &&
          expected.channel == name.channel) {
        return i;
      }
    }
    return SIZE_MAX;
  }

  Status timed_out() const {
    constexpr int kMaxNamed = 8;
    std::string text;
    int missing = 0;
    const auto add = [&](const std::string& sentence) {
      if (++missing > kMaxNamed) return;
      text += text.empty() ? "" : "; ";
      text += sentence;
    };
    for (std::size_t t = 0; t < plan_.targets.size(); ++t) {
      if (established(t)) continue;
      std::string tried;
      for (const Attempt& attempt : attempts_) {
        if (attempt.target != t) continue;
        const std::string why = !attempt.last.ok() ? attempt.last.message()
                                : attempt.handshake.fd() >= 0
                                    ? "connected, but no answer to the handshake"
                                    : "no answer";
        tried += fmt::format("{}{} ({})", tried.empty() ? "" : ", ", attempt.address->text(), why);
      }
      add(fmt::format("{} could not be reached at {}", describe(plan_.targets[t].rank),
                      tried.empty() ? "any address: it has given none" : tried));
    }
    for (std::size_t e = 0; e < plan_.expected.size(); ++e) {
      if (established(plan_.targets.size() + e)) continue;
      add(fmt::format("{} has not connected to this rank", describe(plan_.expected[e].rank)));
    }
    if (missing > kMaxNamed) text += fmt::format("; and {} more connections", missing - kMaxNamed);
    return Status::error(
        Code::kRemoteError,
        fmt::format("rank {} has {} of its {} connections at the deadline: {}. Check that these "
                    "ranks run and that no firewall is between the hosts; WHORL_HOST_ADDRESS "
                    "chooses the address of a host",
                    plan_.rank, links_.size() - open_, links_.size(), text));
  }

  const MeshPlan& plan_;
  Acceptor acceptor_;
  std::vector<MeshLink> links_;            ///< links of the targets, then expected ones
  std::vector<Attempt> attempts_;          ///< attempts, ordered by target
  std::vector<std::size_t> first_attempt_; ///< index of each target's first attempt, and the end
  std::vector<pollfd> fds_;
  std::vector<Attempt*> polled_; ///< attempts with sockets, in the order of fds_
  std::size_t open_ = 0;         ///< number of links without a socket
  std::uint64_t started_ns_ = 0;
  std::uint64_t next_check_ns_ = 0;
  Status fatal_;
};

} // namespace

Result<std::vector<MeshLink>> connect_mesh(std::span<const Fd> listeners, const MeshPlan& plan,
                                           std::vector<MeshLink>* made) {
  MeshLoop loop(listeners, plan);
  auto links = loop.run();
  if (!links.ok() && made != nullptr) *made = loop.made();
  return links;
}

} // namespace whorl
