#include "comm/bootstrap_root.h"

#include <fmt/core.h>

#include <array>
#include <cstring>
#include <memory>
#include <thread>

#include "base/log.h"
#include "base/thread.h"
#include "comm/bootstrap_server.h"
#include "transports/socket/listener.h"

namespace whorl {
namespace {

using bootstrap::Root;

/// A root owns itself: nobody waits for the thread.
Status launch(std::shared_ptr<Root> root) {
  WHORL_TRY(root->prepare());
  Result<std::thread> thread = start_thread("whorl-root", [root = std::move(root)]() noexcept {
    try {
      root->run();
    } catch (const std::exception& error) { // out of memory; the ranks see the hang-up
      log(LogLevel::kError, fmt::format("the root of the rendezvous ends: {}", error.what()));
    }
  });
  if (!thread.ok()) return thread.status();
  thread->detach();
  return {};
}

} // namespace

Result<UniqueId> start_root(RootScope scope, std::uint64_t patience_ns) {
  UniqueId id;
  std::array<std::byte, 8> name{};
  for (const std::span<std::byte> part :
       {std::span<std::byte>(id.identity.job), std::span<std::byte>(id.identity.secret),
        std::span<std::byte>(name)}) {
    if (const int result = sys().random_bytes(part); result < 0) {
      return Status::error(Code::kSystemError,
                           fmt::format("getrandom failed: {}", errno_text(result)));
    }
  }
  std::uint64_t number = 0;
  std::memcpy(&number, name.data(), sizeof number);
  id.addresses.push_back(SocketAddress::unix_name(fmt::format("w{:016x}", number)));
  Result<Fd> local = listen_at(id.addresses.front());
  if (!local.ok()) return local.status();
  std::vector<Fd> sockets;
  sockets.push_back(*std::move(local));
  if (scope == RootScope::kAnywhere) {
    Result<std::vector<Listener>> outer = bind_for_peers(UniqueId::kMaxAddresses - 1, false);
    if (!outer.ok()) return outer.status();
    for (Listener& listener : *outer) {
      id.addresses.push_back(listener.address);
      if (!listener.socket.valid()) continue;
      WHORL_TRY(start_listening(listener.socket));
      sockets.push_back(std::move(listener.socket));
    }
  }
  WHORL_TRY(start_root_on(std::move(sockets), id.identity, {.patience_ns = patience_ns}));
  return id;
}

Status start_root_on(std::vector<Fd> listeners, const Identity& identity, const RootTerms& terms) {
  return launch(std::make_shared<Root>(std::move(listeners), identity, terms));
}

} // namespace whorl
