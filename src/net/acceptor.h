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

namespace whorl {

/// Function that writes the secret of `asked.job` to `asked.secret`; returns false if this process
/// does not know the job.
using FindSecret = std::function<bool(Identity& asked)>;

/// Rules by which an Acceptor judges connections, and functions that receive them. Pointers are
/// borrowed.
struct AcceptorRules {
  const Identity* identity = nullptr; ///< the only job's; null: use find_secret
  FindSecret find_secret;
  std::uint32_t rank = 0; ///< rank that every connection must name as its target
  bool same_user = false; ///< true: only unix sockets of this process's user are accepted
  bool encrypts = false;  ///< whether connections are encrypted; both sides must agree
  std::string name;       ///< name of the accepting side, for the log
  /// Function that returns kNone if a connection with this name is expected here, otherwise the
  /// reason of its refusal.
  std::function<HandshakeFailure(const ConnectionName& name)> judge;
  /// Function that returns the number of connections still to come, each of which has a place
  /// beside those of strangers, since all may come at the same moment. Null: no number is known.
  std::function<std::size_t()> awaited;
  /// Function that takes an authenticated connection.
  std::function<void(const ConnectionName& name, const decltype(Identity::job)& job,
                     StreamSocket socket)>
      welcome;
  /// Function that is told, with the reason, of a peer that knows the secret and cannot be accepted
  /// all the same, because it disagrees about encryption. May be empty.
  std::function<void(const ConnectionName& name, const decltype(Identity::job)& job,
                     const Status& why)>
      disagree;
};

/// Acceptor of connections, which authenticates them inside a poll() loop of its owner.
///
/// Connections that have not proved anything, *strangers*, hold a bounded number of places
/// (places(), and one for each connection that is awaited), each for 2 s at most. When the places
/// are full, a new connection displaces the oldest stranger that has sent no hello, or the oldest
/// of all: a member's hello follows its connection at once, and a member that is dropped all the
/// same tries again.
class Acceptor {
 public:
  /// Borrows the listening sockets until stop().
  Acceptor(std::vector<int> listeners, AcceptorRules rules);

  /// Adds the sockets to poll, and lowers `*wake_ns` to the latest time of the next call of step().
  void add_to(std::vector<pollfd>& fds, std::uint64_t* wake_ns);
  /// Advances the handshakes and accepts connections. `ready` are the entries that add_to() added.
  /// May call the rules' functions. Returns an error if no socket can be opened although no
  /// stranger holds one.
  Status step(std::span<const pollfd> ready);
  /// Stops accepting connections; handshakes under way continue. Callable from the rules'
  /// functions.
  void stop() noexcept { listeners_.clear(); }
  /// Closes the sockets of half of the strangers. Returns false if there is no stranger.
  bool make_room();

  /// Returns an eighth of the open files that this process may have, 4 to 1024, so that sockets of
  /// strangers cannot keep members, or the program, from opening files.
  static std::size_t places() noexcept;

 private:
  Status accept_from(std::size_t listener);
  void drop_one();
  void greet(Handshake& stranger);

  std::vector<int> listeners_;
  AcceptorRules rules_;
  std::size_t places_;
  std::vector<Handshake> strangers_; ///< oldest first
  std::size_t polled_ = 0;           ///< number of strangers_ at the last add_to()
  std::uint64_t resume_ns_ = 0;      ///< time to accept again, after files ran out
};

} // namespace whorl
