#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/system.h"
#include "net/handshake.h"
#include "net/mesh.h"

namespace whorl {

/// Connecting side of a mesh, inside a poll() loop of its owner, as Acceptor is the accepting side.
/// connect_mesh() says how the addresses of a target are tried. All errors end the mesh.
class Dialer {
 public:
  /// Function that takes the connection to the target with a number in the plan, and the address.
  using Connected = std::function<void(std::size_t target, StreamSocket socket, std::string via)>;
  /// Function that closes sockets of others, so that one can be opened here; returns false if there
  /// are none.
  using MakeRoom = std::function<bool()>;

  /// Borrows the plan.
  Dialer(const MeshPlan& plan, Connected connected, MakeRoom make_room);

  /// Starts the attempts whose time has come.
  Status start_due(std::uint64_t now);
  /// Adds the sockets to poll, and lowers `*wake_ns` to the latest time of the next start_due().
  void add_to(std::vector<pollfd>& fds, std::uint64_t* wake_ns);
  /// Advances the attempts. `ready` are the entries that add_to() added.
  Status step(std::span<const pollfd> ready);
  /// Returns an error if every address of a target refuses connections, some time after the begin.
  Status check_for_gone(std::uint64_t now) const;
  /// Returns each address of a target with the result of the attempt: "10.0.0.1:4242 (no answer)".
  std::string describe_attempts(std::size_t target) const;

 private:
  /// Attempts to connect to one address of one target.
  struct Attempt {
    std::size_t target = 0;
    const SocketAddress* address = nullptr;
    std::uint64_t due_ns = 0; ///< time to connect next, while there is neither socket nor handshake
    std::uint64_t retry_ns = 0;
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
  struct Target {
    std::vector<Attempt> attempts; ///< attempts at its addresses, in their order
    bool established = false;
    bool decided() const noexcept;
  };

  std::string describe(const Attempt& attempt) const;
  Status start(Attempt& attempt);
  Status begin_handshake(Attempt& attempt, Fd socket);
  Status check_user(const Attempt& attempt, const Fd& socket) const;
  Status out_of_files(int error) const;
  void failed(Attempt& attempt, Status why, bool refused);
  Status connected(Attempt& attempt);
  Status step(Attempt& attempt);
  void stop_others(const Attempt& winner) noexcept;

  const MeshPlan& plan_;
  Connected connected_;
  MakeRoom make_room_;
  std::uint64_t started_ns_;
  std::vector<Target> targets_;
  std::vector<Attempt*> polled_; ///< attempts with sockets, in the order of add_to()
};

} // namespace whorl
