#include "comm/bootstrap_root.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/log.h"
#include "base/thread.h"
#include "transports/socket/handshake.h"

namespace whorl {
namespace {

using bootstrap::Answer;
using bootstrap::Contribution;

// Connections that have not authenticated themselves, at most; the oldest is dropped for a new one
// (a member tries again).
constexpr std::size_t kMaxStrangers = 1024;
// How long a failed root answers late ranks with the error, so that they need not wait for theirs.
constexpr std::uint64_t kAfterlifeNs = 30'000'000'000;
// The same where the port is the user's: for that long it is not free for another attempt.
constexpr std::uint64_t kShortAfterlifeNs = 2'000'000'000;
constexpr std::uint64_t kForeverNs = 3'600'000'000'000;

/// One connection: a stranger until the handshake is done, then a member once it has contributed.
struct Connection {
  Handshake handshake;
  Fd socket; ///< after the handshake
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

  int fd() const noexcept { return socket.valid() ? socket.get() : handshake.fd(); }
};

class Root {
 public:
  Root(Fd listener, const Identity& identity, bool has_fixed_port, std::uint64_t patience_ns)
      : listener_(std::move(listener)),
        identity_(identity),
        has_fixed_port_(has_fixed_port),
        patience_ends_ns_(has_fixed_port ? sys().now_ns() + patience_ns : UINT64_MAX) {}

  Status prepare() {
    const int result = sys().random_bytes(salt_);
    return result >= 0 ? Status()
                       : Status::error(Code::kSystemError,
                                       fmt::format("getrandom failed: {}", errno_text(result)));
  }

  void run() {
    while (!finished()) {
      poll_all();
      check_deadlines();
      std::erase_if(connections_, [](const std::unique_ptr<Connection>& c) { return c->fd() < 0; });
    }
  }

 private:
  bool finished() const {
    const std::uint64_t now = sys().now_ns();
    const bool members = std::any_of(connections_.begin(), connections_.end(),
                                     [](const auto& c) { return c->member; });
    if (failed_ && now >= ends_ns_) return true;
    if (!joined_any_) return now >= patience_ends_ns_;
    return !members && !listener_.valid();
  }

  void poll_all() {
    const std::uint64_t now = sys().now_ns();
    std::uint64_t wake_ns = std::min(now + kForeverNs, joined_any_ ? ends_ns_ : patience_ends_ns_);
    fds_.clear();
    fds_.push_back({listener_.get(), POLLIN, 0});
    for (const auto& connection : connections_) {
      short events = connection->handshake.events();
      if (connection->socket.valid()) {
        events = static_cast<short>(connection->answer != nullptr ? POLLIN | POLLOUT : POLLIN);
      }
      fds_.push_back({connection->fd(), events, 0});
      wake_ns = std::min(
          {wake_ns, connection->deadline_ns,
           connection->handshake.fd() >= 0 ? connection->handshake.deadline_ns() + 1 : UINT64_MAX});
    }
    static_cast<void>(sys().poll(fds_, wake_ns > now ? wake_ns - now : 0));
    // Connections made in this round come after those that were polled.
    const std::size_t polled = connections_.size();
    for (std::size_t i = 0; i < polled; ++i) {
      Connection& connection = *connections_[i];
      const short ready = fds_[i + 1].revents;
      if (connection.handshake.fd() >= 0) {
        if (ready != 0 || sys().now_ns() > connection.handshake.deadline_ns()) greet(connection);
      } else if (connection.socket.valid() && ready != 0) {
        send_answer(connection);
        if (connection.socket.valid()) receive(connection);
      }
    }
    if (fds_[0].revents != 0 && listener_.valid()) accept_all();
  }

  void accept_all() {
    for (int i = 0; i < 256; ++i) { // a bound: those already here come next
      Fd socket(sys().accept(listener_.get()));
      if (socket.get() == -EMFILE || socket.get() == -ENFILE) {
        fail(
            Code::kSystemError,
            fmt::format("the root of the rendezvous cannot open a socket for every rank: {}; raise "
                        "the limit on open files (ulimit -n) of its process",
                        errno_text(socket.get())));
        listener_.reset();
        return;
      }
      if (!socket.valid()) return;
      drop_oldest_stranger();
      auto connection = std::make_unique<Connection>();
      connection->handshake =
          Handshake::accepting(std::move(socket), identity_, bootstrap::kRootRank);
      connections_.push_back(std::move(connection)); // before it can be among those that fail
      greet(*connections_.back());
    }
  }

  void drop_oldest_stranger() {
    const auto stranger = [](const auto& c) { return c->handshake.fd() >= 0; };
    const auto count = std::count_if(connections_.begin(), connections_.end(), stranger);
    if (static_cast<std::size_t>(count) < kMaxStrangers) return;
    connections_.erase(std::find_if(connections_.begin(), connections_.end(), stranger));
  }

  void greet(Connection& connection) {
    Progress progress = connection.handshake.step();
    if (progress == Progress::kAdvanced) {
      if (connection.handshake.name().role == SocketRole::kBootstrap) {
        connection.handshake.admit();
      } else {
        connection.handshake.refuse(HandshakeFailure::kName);
      }
      progress = connection.handshake.step();
    }
    if (progress == Progress::kDone) {
      connection.rank = connection.handshake.name().from;
      connection.socket = connection.handshake.take();
      connection.handshake = Handshake();
      receive(connection);
    } else if (progress == Progress::kFailed) {
      if (log_enabled(LogLevel::kInfo)) {
        log(LogLevel::kInfo, "the root of the rendezvous turned a connection away: " +
                                 connection.handshake.status().message());
      }
      connection.handshake = Handshake();
    }
  }

  /// Reads contributions. A member sends the next one only after it has its answer.
  void receive(Connection& c) {
    for (;;) {
      std::span<std::byte> into;
      std::array<std::byte, 256> unwanted;
      const bool over = failed_ && c.member;
      if (over || c.contributed) { // nothing is of interest but the end
        into = unwanted;
      } else if (c.header_bytes < sizeof c.header) {
        into = std::as_writable_bytes(std::span(&c.header, 1)).subspan(c.header_bytes);
      } else {
        into = std::span(all_).subspan(c.rank * contribution_bytes_ + c.body_bytes,
                                       contribution_bytes_ - c.body_bytes);
      }
      iovec part{into.data(), into.size()};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      const ssize_t got = sys().recvmsg(c.socket.get(), &message);
      if (got == -EAGAIN) return;
      if (got <= 0) return hung_up(c);
      if (over) continue;
      if (c.contributed) return hung_up(c); // it breaks the protocol
      if (c.header_bytes < sizeof c.header) {
        c.header_bytes += static_cast<std::size_t>(got);
        if (c.header_bytes == sizeof c.header && !join(c)) return;
      } else {
        c.body_bytes += static_cast<std::size_t>(got);
      }
      if (c.header_bytes == sizeof c.header && c.body_bytes == contribution_bytes_) {
        c.contributed = true;
        if (++contributions_ == nranks_) return answer_all();
      }
    }
  }

  /// A header is complete. Returns whether its contribution is welcome.
  bool join(Connection& c) {
    const Contribution& h = c.header;
    if (h.magic != Contribution::kMagic || h.rank != c.rank || h.nranks < 1 ||
        h.nranks > bootstrap::kMaxRanks || h.bytes > bootstrap::kMaxContributionBytes ||
        std::uint64_t{h.nranks} * h.bytes > bootstrap::kMaxTotalBytes) {
      drop(c);
      return false;
    }
    c.who.assign(h.who.data(), ::strnlen(h.who.data(), h.who.size()));
    std::replace_if(
        c.who.begin(), c.who.end(), [](char ch) { return static_cast<unsigned char>(ch) < 32; },
        ' ');
    c.deadline_ns = sys().now_ns() + std::uint64_t{h.timeout_ms} * 1'000'000;
    const bool first_time = !c.member;
    c.member = true;
    joined_any_ = true;
    if (failed_) {
      c.deadline_ns = UINT64_MAX;
      start_answer(c, failure_);
      return false;
    }
    if (nranks_ == 0) {
      nranks_ = h.nranks;
      first_ = fmt::format("rank {} ({})", c.rank, c.who);
      members_.assign(nranks_, nullptr);
    }
    if (h.nranks != nranks_) {
      fail(Code::kInvalidUsage,
           fmt::format("the ranks disagree about their number: {} says {}, rank {} ({}) says {}",
                       first_, nranks_, c.rank, c.who, h.nranks));
      return false;
    }
    if (c.rank >= nranks_) {
      fail(Code::kInvalidArgument,
           fmt::format("rank {} ({}) does not exist among {} ranks", c.rank, c.who, nranks_));
      return false;
    }
    if (first_time) {
      if (members_[c.rank] != nullptr || left_.contains(c.rank)) {
        const std::string other =
            members_[c.rank] != nullptr ? members_[c.rank]->who : left_.at(c.rank);
        fail(Code::kInvalidUsage,
             fmt::format("two processes say that they are rank {}: one is at {}, the other at {}",
                         c.rank, other, c.who));
        return false;
      }
      members_[c.rank] = &c;
      if (++joined_ == nranks_) listener_.reset(); // nobody else is expected
    }
    if (!left_.empty()) {
      fail(Code::kRemoteError,
           fmt::format("rank {} ({}) of {} left the rendezvous or died in the middle of it",
                       left_.begin()->first, left_.begin()->second, nranks_));
      return false;
    }
    if (contributions_ == 0 && !sized_) {
      contribution_bytes_ = h.bytes;
      sized_ = true;
      all_.assign(std::size_t{nranks_} * h.bytes, std::byte{0});
    }
    if (h.bytes != contribution_bytes_ || h.round != round_) {
      fail(Code::kInvalidUsage,
           fmt::format("rank {} ({}) gives {} bytes in round {} of the rendezvous, others give {} "
                       "in round {}: all ranks must use the same release and make the same calls",
                       c.rank, c.who, h.bytes, h.round, contribution_bytes_, round_));
      return false;
    }
    return true;
  }

  void answer_all() {
    Answer header;
    header.round = round_++;
    header.bytes = all_.size();
    header.salt = salt_;
    ByteWriter out;
    out.put(header);
    out.put_bytes(all_);
    const auto answer = std::make_shared<const std::vector<std::byte>>(out.bytes());
    contributions_ = 0;
    sized_ = false;
    for (Connection* member : members_) {
      member->contributed = false;
      member->header_bytes = member->body_bytes = 0;
      member->deadline_ns = UINT64_MAX;
    }
    // Rank 0 last: this thread may live in its process, and ends with it.
    for (std::size_t rank = nranks_; rank-- > 0;) {
      if (members_[rank] != nullptr) start_answer(*members_[rank], answer);
    }
  }

  void start_answer(Connection& c, std::shared_ptr<const std::vector<std::byte>> answer) {
    c.answer = std::move(answer);
    c.answered = 0;
    c.closing = failed_;
    send_answer(c);
  }

  void send_answer(Connection& c) {
    while (c.answer != nullptr) {
      const std::span<const std::byte> rest = std::span(*c.answer).subspan(c.answered);
      if (rest.empty()) {
        c.answer = nullptr;
        if (c.closing) static_cast<void>(sys().shutdown_send(c.socket.get()));
        return;
      }
      iovec part{const_cast<std::byte*>(rest.data()), rest.size()};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      const ssize_t sent = sys().sendmsg(c.socket.get(), &message);
      if (sent == -EAGAIN) return;
      if (sent < 0) return hung_up(c);
      c.answered += static_cast<std::size_t>(sent);
    }
  }

  /// Gives everybody the error, now and later.
  void fail(Code code, const std::string& text) {
    if (failed_) return;
    failed_ = true;
    ends_ns_ = sys().now_ns() + (has_fixed_port_ ? kShortAfterlifeNs : kAfterlifeNs);
    Answer header;
    header.code = static_cast<std::uint32_t>(code);
    header.round = round_;
    header.bytes = std::min<std::size_t>(text.size(), Answer::kMaxTextBytes);
    header.salt = salt_;
    ByteWriter out;
    out.put(header);
    out.put_bytes(std::as_bytes(std::span(text)).first(header.bytes));
    failure_ = std::make_shared<const std::vector<std::byte>>(out.bytes());
    for (const bool rank0 : {false, true}) { // rank 0 last, as in answer_all()
      for (const auto& connection : connections_) {
        if (!connection->member || (connection->rank == 0) != rank0) continue;
        connection->deadline_ns = UINT64_MAX;
        if (connection->socket.valid()) start_answer(*connection, failure_);
      }
    }
  }

  void drop(Connection& c) {
    if (c.member && c.rank < members_.size() && members_[c.rank] == &c) members_[c.rank] = nullptr;
    c.member = false;
    c.deadline_ns = UINT64_MAX;
    c.answer = nullptr;
    c.socket.reset();
  }

  void hung_up(Connection& c) {
    const bool was_member = c.member && c.rank < members_.size() && members_[c.rank] == &c;
    const std::string who = c.who;
    const bool in_round = c.contributed || c.header_bytes > 0 || contributions_ > 0 || sized_ ||
                          joined_ < nranks_ || c.answer != nullptr;
    drop(c);
    if (!was_member || failed_) return;
    left_.emplace(c.rank, who);
    if (in_round) {
      fail(Code::kRemoteError,
           fmt::format("rank {} ({}) of {} died in the middle of the rendezvous", c.rank, who,
                       nranks_));
    }
  }

  void check_deadlines() {
    if (failed_) return;
    const std::uint64_t now = sys().now_ns();
    for (const auto& c : connections_) {
      if (c->deadline_ns > now) continue;
      fail(Code::kRemoteError, describe_missing(c->header.timeout_ms));
      return;
    }
  }

  std::string describe_missing(std::uint32_t timeout_ms) const {
    constexpr std::size_t kMaxNamed = 16;
    std::vector<std::string> missing;
    std::size_t waiting = 0;
    bool absent = false;
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      const Connection* const member = members_[rank];
      if (member != nullptr && member->contributed) {
        ++waiting;
      } else {
        absent = absent || member == nullptr;
        missing.push_back(member == nullptr ? std::to_string(rank)
                                            : fmt::format("{} ({})", rank, member->who));
      }
    }
    const std::size_t count = missing.size();
    std::string names = missing.empty() ? "" : missing[0];
    for (std::size_t i = 1; i < std::min(count, kMaxNamed); ++i) {
      names += (i + 1 == count ? " and " : ", ") + missing[i];
    }
    if (count > kMaxNamed) names += fmt::format(" and {} more", count - kMaxNamed);
    return fmt::format(
        "rank{} {} of {} did not {} within {} s; {} rank{} waiting. Check that {} started, with "
        "the "
        "same unique id or address and the right rank, and can reach the root of the rendezvous",
        count == 1 ? "" : "s", names, nranks_, absent ? "arrive" : "contribute to the rendezvous",
        timeout_ms / 1000.0, waiting, waiting == 1 ? " is" : "s are",
        count == 1 ? "it has" : "they have");
  }

  Fd listener_;
  Identity identity_;
  bool has_fixed_port_;
  std::uint64_t patience_ends_ns_; ///< when to end if nobody has joined
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
