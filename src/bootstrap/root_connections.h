#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/system.h"
#include "bootstrap/root.h"

namespace whorl::bootstrap {

/// One connection of somebody who knows the secret: a member once it has contributed.
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

/// The root of one rendezvous: collects what its ranks contribute and answers. Used by one thread,
/// its host's, which accepts ranks and polls for them:
///
///     while (!root.finished()) { root.add_to(fds, &wake); poll; root.serve(fds); root.welcome() …;
///     }
class Root {
 public:
  explicit Root(std::uint64_t afterlife_ns) : afterlife_ns_(afterlife_ns) {}

  Status prepare();
  /// Takes a connection of somebody who knows the secret and says that he is `rank`.
  void welcome(std::uint32_t rank, Fd socket);
  /// Adds what is to be polled, in the order in which serve() expects it, and lowers `*wake_ns` to
  /// when to call serve() at the latest.
  void add_to(std::vector<pollfd>& fds, std::uint64_t* wake_ns) const;
  void serve(std::span<const pollfd> fds);
  /// How many entries add_to() adds.
  std::size_t connections() const { return connections_.size(); }
  /// Whether any rank has ever contributed.
  bool joined_any() const { return joined_any_; }
  /// How many ranks are known to be still to come.
  std::size_t awaited() const { return nranks_ - joined_; }
  /// Whether all ranks have contributed.
  bool complete() const { return nranks_ != 0 && joined_ == nranks_; }
  /// Whether all have come and gone, or need not be told of a failure any more.
  bool finished() const;
  /// Gives everybody the error, now and later.
  void fail(Code code, const std::string& text);

 private:
  // Connections.
  /// Reads contributions. A member sends the next one only after it has its answer.
  void receive(Connection& c);
  void start_answer(Connection& c, std::shared_ptr<const std::vector<std::byte>> answer);
  void send_answer(Connection& c);
  void drop(Connection& c);

  // The rendezvous.
  /// A header is complete. Returns whether its contribution is welcome.
  bool join(Connection& c);
  void answer_all();
  void hung_up(Connection& c);
  void check_deadlines();
  std::string describe_missing(std::uint32_t timeout_ms) const;

  std::uint64_t afterlife_ns_; ///< for how long late ranks are told of a failure
  std::array<std::byte, 16> salt_{};
  std::vector<std::unique_ptr<Connection>> connections_;

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
  std::uint64_t ends_ns_ = UINT64_MAX; ///< of the afterlife
};

} // namespace whorl::bootstrap
