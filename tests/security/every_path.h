#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/system.h"
#include "bootstrap/unique_id.h"
#include "net/handshake.h"
#include "tests/support/relay.h"

namespace whorl::test {

/// Attacker on the path of every TCP connection over IPv4 that this process makes while the object
/// lives.
class EveryPath {
 public:
  /// Bytes on their way, behind those of the handshake.
  struct Passing {
    SocketRole role;
    bool to_target; ///< whether they go to the side that accepted the connection
    std::span<std::byte> bytes;
  };
  /// Function that may change bytes.
  using Attack = std::function<void(const Passing&)>;

  explicit EveryPath(Attack attack = {}) : attack_(std::move(attack)), scope_(&detours()) {
    detours().attacker = this;
  }
  ~EveryPath() { detours().attacker = nullptr; }
  EveryPath(const EveryPath&) = delete;
  EveryPath& operator=(const EveryPath&) = delete;

  /// Returns an id that leads to the same root over a path of the attacker's.
  UniqueId through(UniqueId id) {
    id.addresses = {relay_to(id.addresses.front())};
    return id;
  }
  /// Returns the bytes of both directions of all connections with a role.
  Relay::Bytes recorded(SocketRole role) const {
    const std::lock_guard lock(mutex_);
    Relay::Bytes all;
    for (const auto& path : paths_) {
      for (std::size_t n = 0; path->role == role && n < path->relay->connections(); ++n) {
        for (const Relay::Bytes& part : {path->relay->sent(n), path->relay->answered(n)}) {
          all.insert(all.end(), part.begin(), part.end());
        }
      }
    }
    return all;
  }

  static constexpr std::size_t kBytesOfConnecting = 104 + 36, kBytesOfAccepting = 108 + 4;
  static constexpr std::size_t kBytesOfHandshake = kBytesOfConnecting + kBytesOfAccepting;

 private:
  static constexpr std::size_t kRoleAt = 6; ///< place of the role in a hello

  /// System that connects by way of the attacker. Never destroyed: roots are threads that use it a
  /// little longer than the test.
  class Detours final : public System {
   public:
    int connect(int fd, const sockaddr* address, socklen_t size) noexcept override {
      EveryPath* const by = attacker;
      const SocketAddress target = SocketAddress::from(address, size);
      if (by == nullptr || target.family() != AF_INET || by->leads(target)) {
        return System::connect(fd, address, size);
      }
      const SocketAddress instead = by->relay_to(target);
      return System::connect(fd, instead.data(), instead.size());
    }
    std::atomic<EveryPath*> attacker{nullptr};
  };
  static Detours& detours() {
    static auto* const system = new Detours;
    return *system;
  }

  struct Path {
    std::atomic<SocketRole> role{};
    std::unique_ptr<Relay> relay;
  };

  bool leads(const SocketAddress& address) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(paths_.begin(), paths_.end(),
                       [&](const auto& path) { return path->relay->address() == address; });
  }
  SocketAddress relay_to(const SocketAddress& target) {
    const std::lock_guard lock(mutex_);
    Path& path = *paths_.emplace_back(std::make_unique<Path>());
    path.relay = std::make_unique<Relay>(
        target, [this, &path](bool to_target, std::size_t offset, std::span<std::byte> bytes) {
          if (to_target && offset == 0 && bytes.size() > kRoleAt) {
            path.role = static_cast<SocketRole>(bytes[kRoleAt]);
          }
          const std::size_t begin = to_target ? kBytesOfConnecting : kBytesOfAccepting;
          const std::size_t skipped = offset < begin ? begin - offset : 0;
          if (!attack_ || bytes.size() <= skipped) return;
          attack_({path.role, to_target, bytes.subspan(skipped)});
        });
    return path.relay->address();
  }

  Attack attack_;
  mutable std::mutex mutex_; ///< guard of the list
  std::vector<std::unique_ptr<Path>> paths_;
  ScopedSystem scope_;
};

} // namespace whorl::test
