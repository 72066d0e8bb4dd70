#include "bootstrap/root.h"

#include <fmt/core.h>

#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "bootstrap/host.h"
#include "bootstrap/identity.h"
#include "net/listener.h"

namespace whorl {

Result<RootDoors> open_root_doors(RootScope scope) {
  std::array<std::byte, 8> name{};
  WHORL_TRY(fill_randomly(name));
  std::uint64_t number = 0;
  std::memcpy(&number, name.data(), sizeof number);
  RootDoors doors;
  doors.addresses.push_back(SocketAddress::unix_name(fmt::format("w{:016x}", number)));
  Result<Fd> local = listen_at(doors.addresses.front());
  if (!local.ok()) return local.status();
  doors.sockets.push_back(*std::move(local));
  if (scope == RootScope::kThisHost) return doors;
  Result<std::vector<Listener>> outer = bind_for_peers(UniqueId::kMaxAddresses - 1, false);
  if (!outer.ok()) return outer.status();
  for (Listener& listener : *outer) {
    doors.addresses.push_back(listener.address);
    if (!listener.socket.valid()) continue;
    WHORL_TRY(start_listening(listener.socket));
    doors.sockets.push_back(std::move(listener.socket));
  }
  return doors;
}

Result<UniqueId> start_root(RootScope scope, std::uint64_t join_timeout_ns) {
  const Result<Identity> identity = make_identity();
  if (!identity.ok()) return identity.status();
  UniqueId id;
  id.identity = *identity;
  Result<RootDoors> doors = open_root_doors(scope);
  if (!doors.ok()) return doors.status();
  id.addresses = std::move(doors->addresses);
  WHORL_TRY(
      start_root_on(std::move(doors->sockets), id.identity, {.join_timeout_ns = join_timeout_ns}));
  return id;
}

Status start_root_on(std::vector<Fd> listeners, const Identity& identity, const RootTerms& terms) {
  return bootstrap::launch(
      std::make_shared<bootstrap::Host>(std::move(listeners), identity, terms));
}

} // namespace whorl
