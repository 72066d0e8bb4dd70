#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "bootstrap/root.h"
#include "bootstrap/root_connections.h"
#include "net/acceptor.h"

namespace whorl::bootstrap {

/// Server that accepts ranks on listening sockets and hands each to the root of its rendezvous.
/// Used by one thread.
class Host {
 public:
  /// Serves the rendezvous of `identity`, until it is over or no rank has joined in time.
  Host(std::vector<Fd> listeners, const Identity& identity, const RootTerms& terms);
  /// Serves the rendezvous of every job for which `find_secret` knows a secret, until the process
  /// ends.
  Host(std::vector<Fd> listeners, FindSecret find_secret);

  Host(Host&&) = delete; // deleted, because the acceptor refers to the host

  /// Does the part of the set-up that can fail, before run().
  Status prepare();
  void run();

 private:
  using Job = decltype(Identity::job);

  bool over() const;
  /// Returns whether the root has failed and is to let go of its place, where the same ranks may
  /// meet again. Rank 0, which has started the root, has to hear of the failure before: it would
  /// wait for its timeout otherwise. Rank 0 comes at once, so that failed roots do not pile up. If
  /// rank 0 only says why it does not come, all other ranks have to hear that before.
  bool makes_way() const;
  void poll_all();
  /// Returns the root of a rendezvous; makes it if there is none.
  Result<Root*> root_of(const Job& job);
  void welcome(const ConnectionName& name, const Job& job, StreamSocket socket);
  void disagree(const ConnectionName& name, const Job& job, const Status& why);
  std::size_t awaited() const;
  void close_door(); ///< stops accepting connections
  AcceptorRules rules(bool same_user, const Identity* identity, FindSecret find_secret);

  std::vector<Fd> listeners_;
  Identity identity_;        ///< identity of the only rendezvous
  std::optional<Job> only_;  ///< job of the only rendezvous that is served; none: all are
  bool meets_again_ = false; ///< flag, as in RootTerms
  std::uint64_t afterlife_ns_;
  std::uint64_t join_deadline_ns_; ///< time to end if no rank has joined
  Acceptor acceptor_;
  std::map<Job, std::unique_ptr<Root>> roots_;
  std::vector<pollfd> fds_;
};

/// Starts a detached thread that owns and runs the host.
Status launch(std::shared_ptr<Host> host);

} // namespace whorl::bootstrap
