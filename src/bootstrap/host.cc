#include "bootstrap/host.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/open_sockets.h"
#include "base/params.h"
#include "base/thread.h"
#include "net/listener.h"

namespace whorl::bootstrap {
namespace {

// Time for which a failed root answers late ranks with the error, so that they need not time out.
constexpr std::uint64_t kAfterlifeNs = 30'000'000'000;
// Time of these answers where the user chose the port, which is not free again before.
constexpr std::uint64_t kShortAfterlifeNs = 2'000'000'000;
constexpr std::uint64_t kForeverNs = 3'600'000'000'000;

/// Returns whether this process wants connections to be encrypted; Host::prepare() reports a
/// malformed wish.
bool encryption_asked() {
  const auto asked = param_bool(Param::kEncrypt);
  return asked.ok() && *asked;
}

std::vector<int> descriptors(const std::vector<Fd>& sockets) {
  std::vector<int> fds;
  for (const Fd& socket : sockets) fds.push_back(socket.get());
  return fds;
}

} // namespace

Host::Host(std::vector<Fd> listeners, const Identity& identity, const RootTerms& terms)
    : listeners_(std::move(listeners)),
      identity_(identity),
      only_(identity.job),
      meets_again_(terms.meets_again),
      afterlife_ns_(terms.port_is_users ? kShortAfterlifeNs : kAfterlifeNs),
      join_deadline_ns_(sys().now_ns() + terms.join_timeout_ns),
      acceptor_(descriptors(listeners_), rules(terms.same_user, &identity_, nullptr)) {}

Host::Host(std::vector<Fd> listeners, FindSecret find_secret)
    : listeners_(std::move(listeners)),
      afterlife_ns_(kAfterlifeNs),
      join_deadline_ns_(UINT64_MAX),
      acceptor_(descriptors(listeners_), rules(false, nullptr, std::move(find_secret))) {}

AcceptorRules Host::rules(bool same_user, const Identity* identity, FindSecret find_secret) {
  return {.identity = identity,
          .find_secret = std::move(find_secret),
          .rank = kRootRank,
          .same_user = same_user,
          .encrypts = encryption_asked(),
          .name = "the root of the rendezvous",
          .judge =
              [](const ConnectionName& name) {
                return name.role == SocketRole::kBootstrap ? HandshakeFailure::kNone
                                                           : HandshakeFailure::kName;
              },
          .awaited = [this] { return awaited(); },
          .welcome = [this](const ConnectionName& name, const Job& job,
                            StreamSocket socket) { welcome(name, job, std::move(socket)); },
          .disagree = [this](const ConnectionName& name, const Job& job,
                             const Status& why) { disagree(name, job, why); }};
}

Status Host::prepare() {
  WHORL_TRY(param_bool(Param::kEncrypt).status());
  return only_ ? root_of(*only_).status() : Status();
}

bool Host::over() const {
  if (!only_) return false;
  const Root& root = *roots_.at(*only_);
  if (makes_way() && !root.connected()) return true;
  return root.finished() || (!root.joined_any() && sys().now_ns() >= join_deadline_ns_);
}

bool Host::makes_way() const {
  if (!only_ || !meets_again_) return false;
  return roots_.at(*only_)->is_known_failure();
}

void Host::run() {
  while (!over()) poll_all();
  close_door();
}

Result<Root*> Host::root_of(const Job& job) {
  std::unique_ptr<Root>& root = roots_[job];
  if (root == nullptr) {
    auto made = std::make_unique<Root>(afterlife_ns_);
    if (Status status = made->prepare(); !status.ok()) {
      roots_.erase(job);
      return status;
    }
    root = std::move(made);
  }
  return root.get();
}

void Host::poll_all() {
  const std::uint64_t now = sys().now_ns();
  std::uint64_t wake_ns = std::min(now + kForeverNs, join_deadline_ns_);
  fds_.clear();
  for (const auto& [job, root] : roots_) root->add_to(fds_, &wake_ns);
  const std::size_t polled = fds_.size();
  acceptor_.add_to(fds_, &wake_ns);
  static_cast<void>(sys().poll(fds_, wake_ns > now ? wake_ns - now : 0));

  // Connections that are accepted from here on were not polled and are at the end of their root's
  // list.
  std::span<const pollfd> ready = std::span(fds_).first(polled);
  for (const auto& [job, root] : roots_) {
    const std::size_t own = root->connections();
    root->serve(ready.first(own));
    ready = ready.subspan(own);
  }
  if (const Status status = acceptor_.step(std::span(fds_).subspan(polled)); !status.ok()) {
    log(LogLevel::kWarn, status.message());
    for (const auto& [job, root] : roots_) { // complete roots need no other socket
      if (!root->complete()) root->fail(status.code(), status.message());
    }
  }
  if (only_) {
    const Root& root = *roots_.at(*only_);
    if (root.joined_any()) join_deadline_ns_ = UINT64_MAX;
    if (root.complete() || makes_way()) close_door();
    return;
  }
  std::erase_if(roots_, [](const auto& entry) {
    const Root& root = *entry.second;
    return root.finished() || (!root.joined_any() && root.connections() == 0);
  });
}

void Host::welcome(const ConnectionName& name, const Job& job, StreamSocket socket) {
  // Without a root (no random bytes) the rank sees the hang-up.
  if (const auto root = root_of(job); root.ok()) (*root)->welcome(name.from, std::move(socket));
}

void Host::disagree(const ConnectionName& name, const Job& job, const Status& why) {
  const auto root = root_of(job);
  if (!root.ok()) return;
  (*root)->refuse_setting(name.from, why);
}

std::size_t Host::awaited() const {
  std::size_t ranks = 0;
  for (const auto& [job, root] : roots_) ranks += root->awaited();
  return ranks;
}

void Host::close_door() {
  acceptor_.stop();
  stop_listening(listeners_);
}

Status launch(std::shared_ptr<Host> host) {
  keep_sockets_from_children(); // a child has no thread that would serve the ranks
  WHORL_TRY(host->prepare());
  return start_detached_thread("whorl-root", [host = std::move(host)]() noexcept {
    try {
      host->run();
    } catch (const std::exception& error) { // out of memory; the ranks see the hang-up
      log(LogLevel::kError, fmt::format("the root of the rendezvous ends: {}", error.what()));
    }
  });
}

} // namespace whorl::bootstrap
