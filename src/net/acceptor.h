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

/// Finds the secret of `asked.job` and writes it to `asked.secret`. False: there is no such job
/// here.
using FindSecret = std::function<bool(Identity& asked)>;

/// Who comes in, and where to. Pointers are borrowed.
struct AcceptorRules {
  const Identity* identity = nullptr; ///< of the only job; null: find_secret knows the jobs
  FindSecret find_secret;
  std::uint32_t rank = 0; ///< that connections must mean
  bool same_user = false; ///< only unix sockets of this process's user
  std::string name;       ///< of the accepting side, for the log
  /// Whether a connection with this name is expected here: kNone, or why it is refused.
  std::function<HandshakeFailure(const ConnectionName& name)> judge;
  /// How many connections are still to come; each has a place beside those of strangers, since all
  /// may come at the same moment. Null: none is known of.
  std::function<std::size_t()> awaited;
  /// Takes an authenticated connection.
  std::function<void(const ConnectionName& name, const decltype(Identity::job)& job, Fd socket)>
      welcome;
};

/// Accepts connections and authenticates them, inside a poll() loop of its owner.
///
/// Connections that have not proved anything, *strangers*, hold a bounded number of places
/// (places(), and one for each connection that is awaited), each for 2 s at most. For a new one the
/// oldest that is still silent makes room, or the oldest of all: a member's hello follows its
/// connection at once, and a member that is dropped all the same tries again.
class Acceptor {
 public:
  /// The listening sockets are borrowed until stop().
  Acceptor(std::vector<int> listeners, AcceptorRules rules);

  /// Adds what to wait for, and lowers `*wake_ns` to when to call step() at the latest.
  void add_to(std::vector<pollfd>& fds, std::uint64_t* wake_ns);
  /// `ready` are the entries that add_to() added. May call the rules' functions. The error says
  /// that no socket can be opened although no stranger holds one.
  Status step(std::span<const pollfd> ready);
  /// Accepts nobody else. Strangers that are here may go on. Callable from the rules' functions.
  void stop() noexcept { listeners_.clear(); }
  /// Gives up the sockets of half of the strangers. False: there is none.
  bool make_room();

  /// An eighth of the open files that this process may have, 4 to 1024: what strangers hold must
  /// not keep members, or the program, from opening theirs.
  static std::size_t places() noexcept;

 private:
  Status accept_from(std::size_t listener);
  void drop_one();
  void greet(Handshake& stranger);

  std::vector<int> listeners_;
  AcceptorRules rules_;
  std::size_t places_;
  std::vector<Handshake> strangers_; ///< oldest first
  std::size_t polled_ = 0;           ///< of them
  std::uint64_t resume_ns_ = 0;      ///< when to accept again, after files ran out
};

} // namespace whorl
