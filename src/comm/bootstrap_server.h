#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/bootstrap_root.h"
#include "transports/socket/acceptor.h"

namespace whorl::bootstrap {

/// One authenticated connection: a member once it has contributed.
struct Connection {
  Fd socket;
  std::uint32_t rank = 0;
  bool member = false;
  std::string who;

  Contribution header;
  std::size_t header_bytes = 0; ///< of the contribution under way
  std::size_t body_bytes = 0;
  bool contributed = false; ///< to the round under way
  std::uint64_t deadline_ns = UINT64_MAX;

  std::shared_ptr<const std::vector<std::byte>> answer; ///< being sent; null: nothing
  std::size_t answered = 0;
  bool closing = false; ///< once the answer is sent
};

/// What start_root() promises: accepts ranks, collects what they contribute and answers. Used by
/// one thread.
class Root {
 public:
  Root(std::vector<Fd> listeners, const Identity& identity, const RootTerms& terms);

  Status prepare();
  void run();

 private:
  // Connections.
  void poll_all();
  void welcome(const ConnectionName& name, Fd socket);
  void close_door(); ///< nobody else comes in
  /// Reads contributions. A member sends the next one only after it has its answer.
  void receive(Connection& c);
  void start_answer(Connection& c, std::shared_ptr<const std::vector<std::byte>> answer);
  void send_answer(Connection& c);
  void drop(Connection& c);

  // The rendezvous.
  bool finished() const;
  /// A header is complete. Returns whether its contribution is welcome.
  bool join(Connection& c);
  void answer_all();
  /// Gives everybody the error, now and later.
  void fail(Code code, const std::string& text);
  void hung_up(Connection& c);
  void check_deadlines();
  std::string describe_missing(std::uint32_t timeout_ms) const;

  AcceptorRules rules(bool same_user);

  std::vector<Fd> listeners_;
  Identity identity_;
  bool port_is_users_;
  std::uint64_t patience_ends_ns_; ///< when to end if nobody has joined
  Acceptor acceptor_;
  std::array<std::byte, 16> salt_{};
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<pollfd> fds_;

  std::uint32_t nranks_ = 0; ///< 0: nobody has said
  std::string first_;        ///< who said it
  bool joined_any_ = false;
  std::uint32_t joined_ = 0;                  ///< ranks that have ever been members
  std::vector<Connection*> members_;          ///< [rank]; null: not here
  std::map<std::uint32_t, std::string> left_; ///< members that have hung up

  std::uint32_t round_ = 0;
  bool sized_ = false; ///< the round under way has a size
  std::size_t contribution_bytes_ = 0;
  std::uint32_t contributions_ = 0; ///< complete ones
  std::vector<std::byte> all_;

  bool failed_ = false;
  std::shared_ptr<const std::vector<std::byte>> failure_;
  std::uint64_t ends_ns_ = UINT64_MAX;
};

} // namespace whorl::bootstrap
