#include "bootstrap/root_client.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/params.h"
#include "base/printable.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/root.h"
#include "net/mesh.h"
#include "net/secret.h"

namespace whorl {
namespace {

using bootstrap::Answer;
using bootstrap::Contribution;

/// Returns "host node7, pid 42".
std::array<char, 64> who_am_i() {
  std::array<char, 41> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::array<char, 64> out{};
  fmt::format("host {}, pid {}", host.data(), ::getpid()).copy(out.data(), out.size() - 1);
  return out;
}

/// A rank's connection to the root of the rendezvous.
class RootOob final : public Oob {
 public:
  RootOob(const Attendant& self, StreamSocket socket) : self_(self), socket_(std::move(socket)) {}
  ~RootOob() override { say_goodbye(); }

  /// Makes an empty first round, after which all ranks are there and the root's salt is known, and
  /// derives the communicator's identity. From then on the root knows better than Attendant::check
  /// who is missing. The secret of the rendezvous may serve many communicators (a secret file
  /// does); together with the salt it gives a secret that no other communicator has. Without a
  /// secret the salt, which processes of other users never see, is the secret.
  Status begin(const Identity& root, Identity* identity) {
    WHORL_TRY(allgather({}, {}));
    self_.check = nullptr;
    if (derive_identity(root.secret, salt_, identity)) return {};
    return Status::error(Code::kInternalError, "HMAC-SHA256 failed");
  }

  Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (!failed_.ok()) return failed_;
    answered_ = false;
    failed_ = exchange(mine, all);
    return failed_;
  }

  Status give_up(const Status& why) override {
    if (!failed_.ok()) return failed_;
    failed_ = why;
    // The root may have failed and hung up before, with a reason that explains this one.
    if (!say_goodbye() && why.code() != Code::kRemoteError) return failed_;
    static_cast<void>(without_exceptions([&] {
      // The root hangs up when it has told the others, unless it has another reason.
      const Status answer = read_answer(round_, {});
      if (root_has_failed_ && why.code() == Code::kRemoteError) failed_ = answer;
      return Status();
    }));
    return failed_;
  }

  /// Looks for an answer that comes without a question, which is the error of another rank.
  Status check() override {
    pollfd entry{socket_.get(), POLLIN, 0};
    if (!failed_.ok() || sys().poll({&entry, 1}, 0) <= 0) return failed_;
    deadline_ns_ = sys().now_ns() + kTellNs;
    failed_ = read_answer(round_, {});
    if (failed_.ok()) failed_ = malformed();
    return failed_;
  }

  bool was_cut_off() const override { return cut_off_ && !root_has_failed_; }

 private:
  /// Tells the root, once, that this rank has all it needs or why this rank has failed. Returns
  /// whether it has told the root now.
  bool say_goodbye() noexcept {
    if (said_goodbye_) return false;
    said_goodbye_ = true;
    self_.comm_error = nullptr; // it may be the reason
    self_.check = nullptr;
    deadline_ns_ = sys().now_ns() + kTellNs;
    const Status told = without_exceptions([&] {
      Contribution message = contribution();
      const std::string_view text =
          std::string_view(failed_.message()).substr(0, bootstrap::kMaxTextBytes);
      message.kind = failed_.ok() ? bootstrap::ContributionKind::kLeaving
                                  : bootstrap::ContributionKind::kFailed;
      message.code = static_cast<std::uint32_t>(failed_.code());
      message.bytes = static_cast<std::uint32_t>(text.size());
      ByteWriter out;
      out.put(message);
      out.put_bytes(std::as_bytes(std::span(text)));
      return send(out.bytes());
    });
    return told.ok();
  }

  Contribution contribution() const {
    Contribution contribution;
    contribution.rank = static_cast<std::uint32_t>(self_.rank);
    contribution.nranks = static_cast<std::uint32_t>(self_.nranks);
    contribution.round = round_;
    contribution.who = who_am_i();
    return contribution;
  }

  Status exchange(std::span<const std::byte> mine, std::span<std::byte> all) {
    if (mine.size() > bootstrap::kMaxContributionBytes ||
        all.size() != mine.size() * static_cast<std::size_t>(self_.nranks)) {
      return Status::error(Code::kInternalError,
                           fmt::format("an all-gather of {} bytes into {} bytes is not possible",
                                       mine.size(), all.size()));
    }
    // The root reports at this rank's timeout; the answer has the rest of the time to arrive.
    constexpr std::uint64_t kGraceNs = 2'000'000'000;
    const std::uint64_t timeout_ns = round_ == 0 ? self_.timeout_ns : 2 * self_.timeout_ns;
    deadline_ns_ = sys().now_ns() + timeout_ns + kGraceNs;
    Contribution header = contribution();
    header.bytes = static_cast<std::uint32_t>(mine.size());
    header.timeout_ms =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(timeout_ns / 1'000'000, UINT32_MAX));
    ByteWriter out;
    out.put(header);
    out.put_bytes(mine);
    // The root may have hung up after an error that is still to be read.
    const Status sent = send(out.bytes());
    // The root waits for the rest of the contribution until it sees that none comes.
    if (!sent.ok()) static_cast<void>(sys().shutdown_send(socket_.get()));
    Status got = read_answer(round_++, all);
    return !sent.ok() && !got.ok() && !answered_ ? sent : got;
  }

  /// Reads the root's answer in a round, or an error of the rendezvous.
  Status read_answer(std::uint32_t round, std::span<std::byte> all) {
    Answer answer;
    WHORL_TRY(receive(std::as_writable_bytes(std::span(&answer, 1))));
    answered_ = true;
    if (!answer.sane(round, all.size())) return malformed();
    if (answer.code != 0) {
      std::string text(answer.bytes, ' ');
      WHORL_TRY(receive(std::as_writable_bytes(std::span(text))));
      root_has_failed_ = said_goodbye_ = true;
      text = text.empty() ? "the rendezvous has failed, and its root does not say why"
                          : printable(text);
      return Status::error(static_cast<Code>(answer.code), std::move(text));
    }
    salt_ = answer.salt;
    return receive(all);
  }

  static Status malformed() {
    return Status::error(Code::kRemoteError, "the root of the rendezvous sent a malformed answer");
  }

  /// Returns the error of a connection on which a call has failed, or that has ended (0).
  Status broken(int error) {
    if (error == -ENOMEM || error == -ENOBUFS) { // a want of this process, not of the root
      return Status::error(
          Code::kSystemError,
          fmt::format("rank {} of {} cannot talk to the root of the rendezvous: {}", self_.rank,
                      self_.nranks, errno_text(error)));
    }
    if (error == -EBADMSG) {
      return changed_on_the_way("the root of the rendezvous",
                                fmt::format("rank {} of {}", self_.rank, self_.nranks));
    }
    cut_off_ = true;
    return Status::error(
        Code::kRemoteError,
        fmt::format("rank {} of {}: the root of the rendezvous has hung up ({}): the process that "
                    "made the unique id, or rank 0, has ended or failed",
                    self_.rank, self_.nranks, error == 0 ? "closed" : errno_text(error)));
  }

  /// Sleeps until the socket is ready, the deadline has passed, or the error is set.
  Status wait(short events) {
    // A look of each of hundreds of ranks takes the processor from the root.
    constexpr std::uint64_t kLookNs = 100'000'000;
    const bool looks = self_.comm_error != nullptr || self_.check;
    if (self_.comm_error != nullptr && self_.comm_error->is_set()) {
      return self_.comm_error->status();
    }
    if (self_.check) WHORL_TRY(self_.check());
    const std::uint64_t now = sys().now_ns();
    if (now >= deadline_ns_) {
      return Status::error(Code::kRemoteError,
                           fmt::format("rank {} of {}: the root of the rendezvous has not answered "
                                       "in time: its process may be stopped, its host down, or the "
                                       "network not carry large packets (MTU)",
                                       self_.rank, self_.nranks));
    }
    pollfd entry{socket_.get(), events, 0};
    const std::uint64_t left = deadline_ns_ - now;
    static_cast<void>(sys().poll({&entry, 1}, looks ? std::min(left, kLookNs) : left));
    return {};
  }

  Status send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t result = socket_.send(bytes);
      if (result == -EAGAIN) {
        WHORL_TRY(wait(POLLOUT));
      } else if (result < 0) {
        return broken(static_cast<int>(result));
      } else {
        bytes = bytes.subspan(static_cast<std::size_t>(result));
      }
    }
    return {};
  }

  Status receive(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t result = socket_.receive(bytes);
      if (result == -EAGAIN) {
        WHORL_TRY(wait(POLLIN));
      } else if (result <= 0) {
        return broken(static_cast<int>(result));
      } else {
        bytes = bytes.subspan(static_cast<std::size_t>(result));
      }
    }
    return {};
  }

  Attendant self_;
  StreamSocket socket_;
  std::uint64_t deadline_ns_ = 0;
  std::uint32_t round_ = 0;
  std::array<std::byte, 16> salt_{};
  bool answered_ = false; ///< whether the root has answered in this round
  bool root_has_failed_ = false;
  bool cut_off_ = false;      ///< whether the connection to the root has ended
  bool said_goodbye_ = false; ///< whether the root expects no more of this rank
  Status failed_;
};

/// The latest ids with which this process has made communicators, and its ranks. Without this list
/// a second use of an id would find no root, which is an error that comes later and says less.
class UsedIds {
 public:
  static UsedIds& of_process() {
    static auto* const ids = new UsedIds; // never destroyed
    return *ids;
  }
  bool contain(const UniqueId& id, int rank) {
    const std::lock_guard lock(mutex_);
    return std::find(uses_.begin(), uses_.end(), Use(id.identity.job, rank)) != uses_.end();
  }
  void add(const UniqueId& id, int rank) {
    const std::lock_guard lock(mutex_);
    uses_.emplace_back(id.identity.job, rank);
    if (uses_.size() > kRemembered) uses_.pop_front();
  }

 private:
  using Use = std::pair<decltype(Identity::job), int>;
  static constexpr std::size_t kRemembered = 1024;
  std::mutex mutex_;
  std::deque<Use> uses_;
};

} // namespace

std::unique_ptr<Oob> make_root_oob(const Attendant& self, StreamSocket socket) {
  return std::make_unique<RootOob>(self, std::move(socket));
}

Result<Rendezvous> join_root(const Attendant& self, RootPlace root) {
  MeshPlan plan;
  WHORL_TRY(read_param(Param::kEncrypt, plan.encrypts));
  plan.rank = self.rank;
  plan.identity = &root.identity;
  plan.same_user = root.same_user;
  plan.targets.push_back({static_cast<int>(bootstrap::kRootRank), SocketRole::kBootstrap, 0,
                          std::move(root.addresses)});
  const bool excused = self.excused();
  plan.deadline_ns = std::min(root.deadline_ns, sys().now_ns() + self.connect_ns());
  plan.comm_error = excused ? nullptr : self.comm_error;
  plan.check = excused ? nullptr : self.check;
  plan.gone = root.gone;
  plan.describe = [&](int) { return fmt::format("the root of the rendezvous ({})", root.where); };
  Result<std::vector<MeshLink>> links = connect_mesh({}, plan);
  if (!links.ok() && !excused &&
      self.excused()) { // else the others miss this rank at their timeout
    plan.deadline_ns = sys().now_ns() + kTellNs;
    plan.comm_error = nullptr;
    plan.check = nullptr; // it may fail for the same reason
    links = connect_mesh({}, plan);
    if (!links.ok()) return self.comm_error->status();
  }
  if (!links.ok()) return links.status();
  auto oob = std::make_unique<RootOob>(self, std::move(links->front().socket));
  if (self.excused()) {
    static_cast<void>(oob->give_up(self.comm_error->status()));
    return self.comm_error->status();
  }
  Rendezvous out;
  WHORL_TRY(oob->begin(root.identity, &out.identity));
  out.oob = std::move(oob);
  return out;
}

Result<Rendezvous> meet_once(const UniqueId& id, const Attendant& self, const char* where,
                             const std::string& gone) {
  UsedIds& used = UsedIds::of_process();
  if (used.contain(id, self.rank)) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("rank {} of {}: this process has made a communicator with this unique id "
                    "before: {}",
                    self.rank, self.nranks, gone));
  }
  const bool leaves_host =
      std::any_of(id.addresses.begin(), id.addresses.end(),
                  [](const SocketAddress& address) { return address.family() != AF_UNIX; });
  Result<Rendezvous> met = join_root(
      self, {.identity = id.identity,
             .addresses = id.addresses,
             .same_user = false,
             .where = where,
             .gone = leaves_host ? gone
                                 : gone + "; this one leads only to a process in the same host and "
                                          "network namespace, because all ranks of the job, or of "
                                          "the communicator whose meeting point it is, were said "
                                          "to be on one host, or that host has no address but "
                                          "loopback for others (WHORL_HOST_ADDRESS)"});
  if (met.ok()) used.add(id, self.rank);
  return met;
}

Result<Rendezvous> meet_by_id(const UniqueId& id, const Attendant& self) {
  WHORL_TRY(check_attendant(self));
  return meet_once(
      id, self, "in the process that made the unique id",
      "a unique id makes one communicator, and only while the process that made it runs "
      "and, unless it is of a meeting point, within an hour; call whorlGetUniqueId() "
      "for each communicator, or give another name at the meeting point, and give its "
      "ranks the new id");
}

Status check_attendant(const Attendant& self) {
  if (self.excused()) return {};
  if (self.nranks < 1 || static_cast<std::uint32_t>(self.nranks) > bootstrap::kMaxRanks ||
      self.rank < 0 || self.rank >= self.nranks) {
    return Status::error(Code::kInvalidArgument,
                         fmt::format("rank {} of {} ranks does not exist", self.rank, self.nranks));
  }
  return {};
}

} // namespace whorl
