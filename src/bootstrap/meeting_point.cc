#include "bootstrap/meeting_point.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "bootstrap/host.h"
#include "bootstrap/identity.h"
#include "net/secret.h"

namespace whorl {
namespace {

using Job = decltype(Identity::job);
using Secret = decltype(Identity::secret);

// The secrets of meeting points. The host keeps one secret; the others follow from the job that a
// connection names:
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

/// Addresses and secret of this process's meeting points for one scope.
struct Place {
  pid_t process = 0; ///< id of the process that made it: a forked child makes its own
  Secret secret{};
  std::vector<SocketAddress> addresses;
};

Result<Place> start_place(RootScope scope) {
  Place place{.process = ::getpid()};
  WHORL_TRY(fill_randomly(place.secret));
  Result<RootDoors> doors = open_root_doors(scope);
  if (!doors.ok()) return doors.status();
  place.addresses = std::move(doors->addresses);
  const auto find_secret = [secret = place.secret](Identity& asked) {
    Secret point{};
    return secret_of_point(secret, asked.job, &point) && secret_of_rendezvous(point, asked);
  };
  WHORL_TRY(
      bootstrap::launch(std::make_shared<bootstrap::Host>(std::move(doors->sockets), find_secret)));
  return place;
}

} // namespace

Result<UniqueId> make_meeting_point(RootScope scope) {
  static std::mutex mutex;
  static auto* const places = new std::array<Place, 2>; // their threads may outlive static objects
  const std::lock_guard lock(mutex);
  Place* const place = &(*places)[scope == RootScope::kAnywhere ? 0 : 1];
  if (place->process != ::getpid()) {
    Result<Place> started = start_place(scope);
    if (!started.ok()) return started.status();
    *place = *std::move(started);
  }
  UniqueId point;
  point.addresses = place->addresses;
  WHORL_TRY(fill_randomly(std::span(point.identity.job).first<kHalf>()));
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
