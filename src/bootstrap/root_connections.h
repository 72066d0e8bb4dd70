#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/system.h"
#include "bootstrap/root.h"
#include "net/stream_socket.h"

namespace whorl::bootstrap {

/// Connection of a peer that knows the secret: a member once the header of a contribution has
/// arrived.
struct Connection {
  StreamSocket socket;
  std::uint32_t rank = 0;
  bool member = false;
  std::string who;

  Contribution header;
  std::size_t header_bytes = 0; ///< received bytes of the header under way
  std::size_t body_bytes = 0;
  std::vector<std::byte> reason; ///< received text of a kFailed
  bool contributed = false;      ///< true once the contribution to the round is complete
  bool leaving = false;          ///< true once the rank has said that it leaves
  std::uint64_t deadline_ns = UINT64_MAX;
  std::uint32_t timeout_ms = 0; ///< timeout that led to the deadline

  std::shared_ptr<const std::vector<std::byte>> answer; ///< answer being sent; null: none
  std::size_t answered = 0;
  bool closing = false; ///< true: shut down once the answer is sent
};

/// Root of one rendezvous: collects the contributions of its ranks and answers them. Used only by
/// the thread of its host, which accepts ranks and polls for them:
///
///     while (!root.finished()) { root.add_to(fds, &wake); poll; root.serve(fds); welcome() …; }
class Root {
 public:
  explicit Root(std::uint64_t afterlife_ns) : afterlife_ns_(afterlife_ns) {}

  Status prepare();
  /// Takes the connection of a peer that knows the secret and claims to be `rank`.
  void welcome(std::uint32_t rank, StreamSocket socket);
  /// Adds the sockets to poll, in the order in which serve() expects them, and lowers `*wake_ns` to
  /// the latest time of the next call of serve().
  void add_to(std::vector<pollfd>& fds, std::uint64_t* wake_ns) const;
  void serve(std::span<const pollfd> fds);
  /// Returns the number of entries that add_to() adds.
  std::size_t connections() const { return connections_.size(); }
  /// Returns whether any connection is open.
  bool connected() const;
  /// Fails because a rank, which its handshake has turned away, has another setting than this root.
  void refuse_setting(std::uint32_t rank, const Status& why);
  /// Returns whether any rank has ever joined, or said why it cannot.
  bool joined_any() const { return !came_.empty(); }
  /// Returns whether the root has failed, and no rank is to come any more that would wait without
  /// the reason: rank 0 has joined, and hears the reason before it hangs up, or all ranks have
  /// come.
  bool is_known_failure() const {
    return failed_ && (joined_rank0_ || (nranks_ != 0 && came_.size() >= nranks_));
  }
  /// Returns the number of ranks that are known and have not joined.
  std::size_t awaited() const { return nranks_ - joined_; }
  /// Returns whether all ranks have joined.
  bool complete() const { return nranks_ != 0 && joined_ == nranks_; }
  /// Returns whether all ranks have joined and hung up, or the time to report a failure is over.
  bool finished() const;
  /// Sends the error to all ranks that have joined, and later to those that still join.
  void fail(Code code, const std::string& text);

 private:
  // Connections.
  /// Reads contributions. A member sends the next contribution only after it has its answer.
  void receive(Connection& c);
  /// Returns where the bytes after a complete header go.
  std::span<std::byte> body_of(Connection& c);
  void start_answer(Connection& c, std::shared_ptr<const std::vector<std::byte>> answer);
  void send_answer(Connection& c);
  void drop(Connection& c);

  // The rendezvous.
  /// Checks a complete header. Returns whether to read on.
  bool begin(Connection& c);
  /// Checks the header of a contribution; its sender becomes a member. Returns whether to read the
  /// contribution.
  bool join(Connection& c);
  void refuse(Connection& c);
  /// Returns the answer that gives an error.
  std::shared_ptr<const std::vector<std::byte>> error_answer(Code code,
                                                             const std::string& text) const;
  /// Ends the rendezvous for the reason that a rank has given.
  void give_up(Connection& c);
  /// Notes that a rank has joined, or is refused.
  void note_joining(std::uint32_t rank);
  void answer_all();
  void hung_up(Connection& c);
  /// Ends the rendezvous because what a rank has sent was changed on the way.
  void fail_as_changed(Connection& c);
  void check_deadlines();
  std::string describe_missing(std::uint32_t timeout_ms) const;

  std::uint64_t afterlife_ns_; ///< time for which a failure is reported to late ranks
  std::array<std::byte, 16> salt_{};
  std::vector<std::unique_ptr<Connection>> connections_;

  std::uint32_t nranks_ = 0;                  ///< 0: not known yet
  std::string first_;                         ///< rank that has set nranks_, for errors
  std::set<std::uint32_t> came_;              ///< ranks that have joined, or said why they cannot
  bool joined_rank0_ = false;                 ///< whether rank 0 has joined, or is refused
  std::uint32_t joined_ = 0;                  ///< number of ranks that have ever been members
  std::vector<Connection*> members_;          ///< members by rank; null: not joined, or hung up
  std::map<std::uint32_t, std::string> left_; ///< members that have hung up

  std::uint32_t round_ = 0;
  bool sized_ = false; ///< true once the round under way has a size
  std::size_t contribution_bytes_ = 0;
  std::uint32_t contributions_ = 0; ///< number of complete contributions
  std::vector<std::byte> all_;

  bool failed_ = false;
  std::shared_ptr<const std::vector<std::byte>> failure_;
  std::uint64_t ends_ns_ = UINT64_MAX; ///< time to stop reporting the failure
};

} // namespace whorl::bootstrap
