#include "comm/bootstrap_root.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"
#include "base/thread.h"
#include "comm/bootstrap_reception.h"
#include "comm/bootstrap_server.h"
#include "transports/socket/secret.h"

namespace whorl {
namespace {

using bootstrap::Guest;
using bootstrap::Reception;
using bootstrap::Root;
using Job = decltype(Identity::job);
using Secret = decltype(Identity::secret);

// How long a failed root answers late ranks with the error, so that they need not wait for theirs.
constexpr std::uint64_t kAfterlifeNs = 30'000'000'000;
// The same where the port is the user's: for that long it is not free for another attempt.
constexpr std::uint64_t kShortAfterlifeNs = 2'000'000'000;
constexpr std::uint64_t kForeverNs = 3'600'000'000'000;

/// What one listening socket serves: one rendezvous, or those of all jobs that have a secret. Used
/// by one thread.
class Host {
 public:
  /// Of one rendezvous. Ends when nobody has come by `patience_ends_ns`.
  Host(Fd listener, const Identity& identity, std::uint64_t afterlife_ns,
       std::uint64_t patience_ends_ns)
      : Host(std::move(listener), [identity](Identity& asked) {
          asked.secret = identity.secret;
          return asked.job == identity.job;
        }) {
    only_.emplace(identity.job);
    afterlife_ns_ = afterlife_ns;
    patience_ends_ns_ = patience_ends_ns;
  }
  Host(Fd listener, Reception::Secret secret)
      : reception_(std::move(listener), std::move(secret)) {}

  /// For the only rendezvous, if there is one; so that what can fail does so early.
  Status prepare() { return only_ ? room(*only_).status() : Status(); }

  void run() {
    while (!over()) {
      poll_all();
      serve_all();
    }
  }

 private:
  bool over() const {
    if (!only_) return !reception_.open();
    const Root& root = *rooms_.at(*only_);
    return root.finished() || (!root.joined_any() && sys().now_ns() >= patience_ends_ns_);
  }

  Result<Root*> room(const Job& job) {
    auto& root = rooms_[job];
    if (root == nullptr) {
      root = std::make_unique<Root>(afterlife_ns_);
      if (Status status = root->prepare(); !status.ok()) {
        rooms_.erase(job);
        return status;
      }
    }
    return root.get();
  }

  void poll_all() {
    const std::uint64_t now = sys().now_ns();
    fds_.clear();
    std::uint64_t wake_ns = std::min(now + kForeverNs, patience_ends_ns_);
    wake_ns = std::min(wake_ns, reception_.collect(fds_));
    for (const auto& [job, root] : rooms_) wake_ns = std::min(wake_ns, root->collect(fds_));
    static_cast<void>(sys().poll(fds_, wake_ns > now ? wake_ns - now : 0));
  }

  void serve_all() {
    std::span<const pollfd> fds = fds_;
    const auto take = [&fds](std::size_t count) {
      const auto first = fds.first(count);
      fds = fds.subspan(count);
      return first;
    };
    const auto at_the_door = take(reception_.connections());
    for (const auto& [job, root] : rooms_) root->serve(take(root->connections()));
    std::vector<Guest> guests;
    const Status accepted = reception_.serve(at_the_door, guests);
    for (Guest& guest : guests) {
      if (const auto root = room(guest.job); root.ok()) (*root)->add(std::move(guest));
    }
    if (!accepted.ok()) {
      for (const auto& [job, root] : rooms_) root->fail(accepted.code(), accepted.message());
    }
    if (only_) {
      const Root& root = *rooms_.at(*only_);
      if (root.joined_any()) patience_ends_ns_ = UINT64_MAX;
      if (root.complete() || !accepted.ok()) reception_.close();
    } else {
      std::erase_if(rooms_, [](const auto& room) {
        const Root& root = *room.second;
        return root.finished() || (!root.joined_any() && root.connections() == 0);
      });
    }
  }

  Reception reception_;
  std::optional<Job> only_;
  std::uint64_t afterlife_ns_ = kAfterlifeNs;
  std::uint64_t patience_ends_ns_ = UINT64_MAX; ///< unless anybody has joined
  std::map<Job, std::unique_ptr<Root>> rooms_;
  std::vector<pollfd> fds_;
};

/// A host owns itself: nobody waits for the thread.
Status launch(std::shared_ptr<Host> host) {
  WHORL_TRY(host->prepare());
  Result<std::thread> thread = start_thread("whorl-root", [host = std::move(host)]() noexcept {
    try {
      host->run();
    } catch (const std::exception& error) { // out of memory; the ranks see the hang-up
      log(LogLevel::kError, fmt::format("the root of the rendezvous ends: {}", error.what()));
    }
  });
  if (!thread.ok()) return thread.status();
  thread->detach();
  return {};
}

Status fill(std::span<std::byte> bytes) {
  const int result = sys().random_bytes(bytes);
  if (result >= 0) return {};
  return Status::error(Code::kSystemError, fmt::format("getrandom failed: {}", errno_text(result)));
}

/// The best addresses, and always the last one, loopback: a host without a network still meets.
std::vector<SocketAddress> some_of(std::vector<SocketAddress> addresses) {
  if (addresses.size() > UniqueId::kMaxAddresses) {
    const auto spare = addresses.begin() + UniqueId::kMaxAddresses - 1;
    addresses.erase(spare, addresses.end() - 1);
  }
  return addresses;
}

// The secrets of meeting points. The host keeps one; what a connection names leads to the others:
//
//     job of a rendezvous    half of the point's ‖ half of HMAC(secret of the point, name)
//     secret of the point    HMAC(secret of the host, the first half)
//     of the rendezvous      HMAC(secret of the point, the second half)

constexpr std::size_t kHalf = sizeof(Job) / 2;

bool secret_of_point(const Secret& host, const Job& job, Secret* out) {
  return hmac_sha256(host, "whorl point", {std::span(job).first<kHalf>()}, out);
}

bool secret_of_rendezvous(const Secret& point, Identity& identity) {
  return hmac_sha256(point, "whorl rendezvous", {std::span(identity.job).last<kHalf>()},
                     &identity.secret);
}

/// Where the meeting points of this process are.
struct Place {
  pid_t process = 0; ///< a child that is forked has a place of its own
  Secret secret{};
  std::vector<SocketAddress> addresses;
};

Result<Place> start_place() {
  Result<Listener> listener = listen_for_peers();
  if (!listener.ok()) return listener.status();
  Place place{.process = ::getpid(), .addresses = some_of(std::move(listener->addresses))};
  WHORL_TRY(fill(place.secret));
  WHORL_TRY(launch(
      std::make_shared<Host>(std::move(listener->socket), [secret = place.secret](Identity& asked) {
        Secret point{};
        return secret_of_point(secret, asked.job, &point) && secret_of_rendezvous(point, asked);
      })));
  return place;
}

} // namespace

Result<UniqueId> start_root() {
  Result<Listener> listener = listen_for_peers();
  if (!listener.ok()) return listener.status();
  UniqueId id;
  WHORL_TRY(fill(id.identity.job));
  WHORL_TRY(fill(id.identity.secret));
  id.addresses = some_of(std::move(listener->addresses));
  WHORL_TRY(launch(
      std::make_shared<Host>(std::move(listener->socket), id.identity, kAfterlifeNs, UINT64_MAX)));
  return id;
}

Status start_root_on(Fd listener, const Identity& identity, std::uint64_t patience_ns) {
  return launch(std::make_shared<Host>(std::move(listener), identity, kShortAfterlifeNs,
                                       sys().now_ns() + patience_ns));
}

Result<UniqueId> make_meeting_point() {
  static std::mutex mutex;
  static auto* const place = new Place; // its thread may outlive static objects
  const std::lock_guard lock(mutex);
  if (place->process != ::getpid()) {
    Result<Place> started = start_place();
    if (!started.ok()) return started.status();
    *place = *std::move(started);
  }
  UniqueId point;
  point.addresses = place->addresses;
  WHORL_TRY(fill(std::span(point.identity.job).first<kHalf>()));
  if (!secret_of_point(place->secret, point.identity.job, &point.identity.secret)) {
    return Status::error(Code::kInternalError, "HMAC-SHA256 failed");
  }
  return point;
}

Result<UniqueId> derive_id(const UniqueId& point, std::string_view name) {
  UniqueId id = point;
  Digest whole{}, digest{};
  const bool hashed = sha256(std::as_bytes(std::span(name)), &whole) &&
                      hmac_sha256(point.identity.secret, "whorl rendezvous name", {whole}, &digest);
  std::copy_n(digest.begin(), kHalf, id.identity.job.begin() + kHalf);
  if (!hashed || !secret_of_rendezvous(point.identity.secret, id.identity)) {
    return Status::error(Code::kInternalError, "HMAC-SHA256 failed");
  }
  return id;
}

} // namespace whorl
