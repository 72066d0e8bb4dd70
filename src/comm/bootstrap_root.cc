#include "comm/bootstrap_root.h"

#include <fmt/core.h>

#include <memory>
#include <thread>

#include "base/log.h"
#include "base/thread.h"
#include "comm/bootstrap_server.h"

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

Result<UniqueId> start_root() {
  Result<Listener> listener = listen_for_peers();
  if (!listener.ok()) return listener.status();
  UniqueId id;
  for (const std::span<std::byte> part :
       {std::span<std::byte>(id.identity.job), std::span<std::byte>(id.identity.secret)}) {
    if (const int result = sys().random_bytes(part); result < 0) {
      return Status::error(Code::kSystemError,
                           fmt::format("getrandom failed: {}", errno_text(result)));
    }
  }
  // The best addresses, and always the last one, loopback: a host without a network still meets.
  id.addresses = std::move(listener->addresses);
  if (id.addresses.size() > UniqueId::kMaxAddresses) {
    const auto spare = id.addresses.begin() + UniqueId::kMaxAddresses - 1;
    id.addresses.erase(spare, id.addresses.end() - 1);
  }
  WHORL_TRY(launch(std::make_shared<Root>(std::move(listener->socket), id.identity, false, 0)));
  return id;
}

Status start_root_on(Fd listener, const Identity& identity, std::uint64_t patience_ns) {
  return launch(std::make_shared<Root>(std::move(listener), identity, true, patience_ns));
}

} // namespace whorl
