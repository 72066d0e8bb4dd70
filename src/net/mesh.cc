#include "net/mesh.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <set>
#include <span>

#include "net/acceptor.h"
#include "net/dialer.h"

namespace whorl {
namespace {

// Time between two looks at the communicator's error; with hundreds of ranks each look costs a time
// slice.
constexpr std::uint64_t kLookNs = 100'000'000;
// Time between two questions whether other ranks have given up.
constexpr std::uint64_t kCheckNs = 40'000'000;
// Time after the deadline in which ranks that could not connect to this one may say so, since they
// know why.
constexpr std::uint64_t kGraceNs = 500'000'000;

class MeshLoop {
 public:
  MeshLoop(std::span<const Fd> listeners, const MeshPlan& plan)
      : plan_(plan),
        acceptor_(open_listeners(listeners, plan), rules()),
        dialer_(plan, taker(), [this] { return acceptor_.make_room(); }),
        next_check_ns_(sys().now_ns() + kCheckNs) {
    for (const MeshTarget& target : plan.targets) {
      links_.push_back({target.rank, target.role, target.channel, StreamSocket(), ""});
    }
    for (const MeshExpected& expected : plan.expected) {
      links_.push_back({expected.rank, expected.role, expected.channel, StreamSocket(), ""});
    }
    open_ = links_.size();
    open_targets_ = plan.targets.size();
  }

  Result<std::vector<MeshLink>> run() {
    while (open_ > 0) {
      const std::uint64_t now = sys().now_ns();
      if (plan_.comm_error != nullptr && plan_.comm_error->is_set())
        return plan_.comm_error->status();
      if (plan_.check && now >= next_check_ns_) {
        next_check_ns_ = now + kCheckNs;
        WHORL_TRY(plan_.check());
      }
      if (now >= deadline()) return timed_out();
      WHORL_TRY(dialer_.check_for_gone(now));
      WHORL_TRY(dialer_.start_due(now));
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
  Dialer::Connected taker() {
    return [this](std::size_t target, StreamSocket socket, std::string via) {
      links_[target].socket = std::move(socket);
      links_[target].via = std::move(via);
      --open_;
      --open_targets_;
    };
  }

  std::uint64_t deadline() const noexcept {
    return plan_.deadline_ns + (plan_.check && open_targets_ == 0 ? kGraceNs : 0);
  }

  void poll_all(std::uint64_t now) {
    std::uint64_t wake_ns = deadline();
    if (plan_.comm_error != nullptr) wake_ns = std::min(wake_ns, now + kLookNs);
    if (plan_.check) wake_ns = std::min(wake_ns, next_check_ns_);
    fds_.clear();
    dialer_.add_to(fds_, &wake_ns);
    const std::size_t dialed = fds_.size();
    acceptor_.add_to(fds_, &wake_ns);
    static_cast<void>(sys().poll(fds_, wake_ns > now ? wake_ns - now : 0));
    fatal_ = dialer_.step(std::span(fds_).first(dialed));
    const Status accepted = acceptor_.step(std::span(fds_).subspan(dialed));
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
                                                    plan_.name_of(static_cast<int>(name.from))));
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
    std::set<int> named; // once each, whatever the number of channels
    const auto add = [&](const std::string& sentence) {
      if (++missing > kMaxNamed) return;
      text += text.empty() ? "" : "; ";
      text += sentence;
    };
    for (std::size_t i = 0; i < links_.size(); ++i) {
      if (links_[i].socket.valid() || !named.insert(links_[i].rank).second) continue;
      const std::string who = plan_.name_of(links_[i].rank);
      if (i >= plan_.targets.size()) {
        add(fmt::format("{} has not connected to this rank", who));
      } else {
        const std::string tried = dialer_.describe_attempts(i);
        add(fmt::format("{} could not be reached at {}", who,
                        tried.empty() ? "any address: it has given none" : tried));
      }
    }
    if (missing > kMaxNamed) text += fmt::format("; and {} more ranks", missing - kMaxNamed);
    return Status::error(
        Code::kRemoteError,
        fmt::format("rank {} has {} of its {} connections at the deadline: {}. {}", plan_.rank,
                    links_.size() - open_, links_.size(), text, advice()));
  }

  /// Says what to look at when connections are missing at the deadline.
  std::string_view advice() const {
    if (links_.front().role == SocketRole::kShm) {
      return "Check that these ranks run, and on this host: hosts with the same boot id, such as "
             "copies of a virtual machine, need each a WHORL_HOST_ID of its own";
    }
    const bool within_host =
        std::all_of(plan_.targets.begin(), plan_.targets.end(), [](const MeshTarget& target) {
          return std::all_of(target.addresses.begin(), target.addresses.end(),
                             [](const SocketAddress& one) { return one.family() == AF_UNIX; });
        });
    if (within_host && plan_.expected.empty()) {
      return "Check that these ranks run, and on this host in this network namespace, which "
             "loopback and unix sockets do not leave";
    }
    return "Check that these ranks run and that no firewall is between the hosts; "
           "WHORL_HOST_ADDRESS chooses the address of a host";
  }

  const MeshPlan& plan_;
  Acceptor acceptor_;
  Dialer dialer_;
  std::vector<MeshLink> links_; ///< links of the targets, then expected ones
  std::vector<pollfd> fds_;
  std::size_t open_ = 0;         ///< number of links without a socket
  std::size_t open_targets_ = 0; ///< number of those that this rank makes
  std::uint64_t next_check_ns_;
  Status fatal_;
};

} // namespace

std::string MeshPlan::name_of(int other) const {
  return describe ? describe(other) : fmt::format("rank {}", other);
}

Result<std::vector<MeshLink>> connect_mesh(std::span<const Fd> listeners, const MeshPlan& plan,
                                           std::vector<MeshLink>* made) {
  MeshLoop loop(listeners, plan);
  auto links = loop.run();
  if (!links.ok() && made != nullptr) *made = loop.made();
  return links;
}

} // namespace whorl
