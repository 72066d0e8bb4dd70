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

/// Accepts ranks on some listening sockets and brings them to the root of their rendezvous. Used by
/// one thread.
class Host {
 public:
  /// Serves the rendezvous of `identity`, until it is over or nobody has come in time.
  Host(std::vector<Fd> listeners, const Identity& identity, const RootTerms& terms);
  /// Serves the rendezvous of every job for which `find_secret` knows a secret, until the process
  /// ends.
  Host(std::vector<Fd> listeners, FindSecret find_secret);

  Host(Host&&) = delete; // the acceptor calls it back

  /// Does early what can fail.
  Status prepare();
  void run();

 private:
  using Job = decltype(Identity::job);

  bool over() const;
  void poll_all();
  /// Finds the root of a rendezvous, or makes it.
  Result<Root*> root_of(const Job& job);
  void welcome(const ConnectionName& name, const Job& job, Fd socket);
  std::size_t awaited() const;
  void close_door(); ///< nobody else comes in
  AcceptorRules rules(bool same_user, const Identity* identity, FindSecret find_secret);

  std::vector<Fd> listeners_;
  Identity identity_;       ///< of the only rendezvous
  std::optional<Job> only_; ///< the only rendezvous that is served; none: any
  std::uint64_t afterlife_ns_;
  std::uint64_t patience_ends_ns_; ///< when to end if nobody has joined
  Acceptor acceptor_;
  std::map<Job, std::unique_ptr<Root>> roots_;
  std::vector<pollfd> fds_;
};

/// Starts a thread for a host. A host owns itself: nobody waits for the thread.
Status launch(std::shared_ptr<Host> host);

} // namespace whorl::bootstrap
