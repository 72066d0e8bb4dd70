#include "comm/bootstrap.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/bytes.h"
#include "base/params.h"
#include "comm/bootstrap_root.h"
#include "transports/socket/mesh.h"
#include "transports/socket/secret.h"

namespace whorl {
namespace {

using bootstrap::Answer;
using bootstrap::Contribution;

/// "host node7, pid 42".
std::array<char, 64> who_am_i() {
  std::array<char, 41> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::array<char, 64> out{};
  fmt::format_to_n(out.data(), out.size() - 1, "host {}, pid {}", host.data(), ::getpid());
  return out;
}

/// A rank's connection to the root of the rendezvous.
class RootOob final : public Oob {
 public:
  RootOob(const Attendant& self, Fd socket) : self_(self), socket_(std::move(socket)) {}

  static Result<Rendezvous> connect(const Attendant& self, const Identity& identity,
                                    std::vector<SocketAddress> addresses,
                                    const std::string& root_name, const std::string& gone) {
    MeshPlan plan;
    plan.rank = self.rank;
    plan.identity = &identity;
    plan.targets.push_back(
        {static_cast<int>(bootstrap::kRootRank), SocketRole::kBootstrap, 0, std::move(addresses)});
    plan.deadline_ns = sys().now_ns() + self.timeout_ns;
    plan.verdict = self.verdict;
    plan.gone = gone;
    plan.describe = [&](int) { return root_name; };
    Result<std::vector<MeshLink>> links = connect_mesh(Fd(), plan);
    if (!links.ok()) return links.status();
    auto oob = std::make_unique<RootOob>(self, std::move(links->front().socket));
    // An empty first round: everybody is here, and the salt is known. The secret of the rendezvous
    // may serve many communicators (a secret file does); with the root's salt it becomes one that
    // no other communicator has.
    WHORL_TRY(oob->allgather({}, {}));
    Rendezvous out;
    if (!derive_identity(identity.secret, oob->salt_, &out.identity)) {
      return Status::error(Code::kInternalError, "HMAC-SHA256 failed");
    }
    out.oob = std::move(oob);
    return out;
  }

  Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (!failed_.ok()) return failed_;
    failed_ = exchange(mine, all);
    return failed_;
  }

 private:
  Status exchange(std::span<const std::byte> mine, std::span<std::byte> all) {
    if (mine.size() > bootstrap::kMaxContributionBytes ||
        all.size() != mine.size() * static_cast<std::size_t>(self_.nranks)) {
      return Status::error(Code::kInternalError,
                           fmt::format("an all-gather of {} bytes into {} bytes is not possible",
                                       mine.size(), all.size()));
    }
    // The root reports at this rank's timeout; the rest is for its answer to arrive.
    const std::uint64_t timeout_ns = round_ == 0 ? self_.timeout_ns : 2 * self_.timeout_ns;
    deadline_ns_ = sys().now_ns() + timeout_ns + 2'000'000'000;
    Contribution contribution;
    contribution.rank = static_cast<std::uint32_t>(self_.rank);
    contribution.nranks = static_cast<std::uint32_t>(self_.nranks);
    contribution.round = round_++;
    contribution.bytes = static_cast<std::uint32_t>(mine.size());
    contribution.timeout_ms =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(timeout_ns / 1'000'000, UINT32_MAX));
    contribution.who = who_am_i();
    ByteWriter out;
    out.put(contribution);
    out.put_bytes(mine);
    // The root may have hung up after an error that is still to be read.
    const Status sent = send(out.bytes());

    Answer answer;
    Status got = receive(std::as_writable_bytes(std::span(&answer, 1)));
    if (!got.ok()) return sent.ok() ? got : sent;
    if (answer.magic != Answer::kMagic) return malformed();
    if (answer.code != 0) {
      if (answer.code > 7 || answer.bytes > Answer::kMaxTextBytes) return malformed();
      std::string text(answer.bytes, ' ');
      WHORL_TRY(receive(std::as_writable_bytes(std::span(text))));
      return Status::error(static_cast<Code>(answer.code), text);
    }
    if (answer.round != contribution.round || answer.bytes != all.size()) return malformed();
    salt_ = answer.salt;
    return receive(all);
  }

  static Status malformed() {
    return Status::error(Code::kRemoteError, "the root of the rendezvous sent a malformed answer");
  }

  Status hung_up(int error) const {
    return Status::error(
        Code::kRemoteError,
        fmt::format("rank {} of {}: the root of the rendezvous has hung up ({}): the process that "
                    "made the unique id, or rank 0, has ended or failed",
                    self_.rank, self_.nranks, error == 0 ? "closed" : errno_text(error)));
  }

  /// Sleeps until the socket is ready, the deadline has passed, or the verdict is raised.
  Status wait(short events) {
    // A look of each of hundreds of ranks takes the processor from the root.
    constexpr std::uint64_t kLookNs = 100'000'000;
    if (self_.verdict != nullptr && self_.verdict->raised()) {
      return self_.verdict->status();
    }
    const std::uint64_t now = sys().now_ns();
    if (now >= deadline_ns_) {
      return Status::error(Code::kRemoteError,
                           fmt::format("rank {} of {}: the root of the rendezvous has not answered "
                                       "for {} s: its process may be stopped",
                                       self_.rank, self_.nranks, self_.timeout_ns / 1'000'000'000));
    }
    pollfd entry{socket_.get(), events, 0};
    const std::uint64_t left = deadline_ns_ - now;
    static_cast<void>(
        sys().poll({&entry, 1}, self_.verdict != nullptr ? std::min(left, kLookNs) : left));
    return {};
  }

  Status send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      const ssize_t result = sys().sendmsg(socket_.get(), &message);
      if (result == -EAGAIN) {
        WHORL_TRY(wait(POLLOUT));
      } else if (result < 0) {
        return hung_up(static_cast<int>(result));
      } else {
        bytes = bytes.subspan(static_cast<std::size_t>(result));
      }
    }
    return {};
  }

  Status receive(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      iovec part{bytes.data(), bytes.size()};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      const ssize_t result = sys().recvmsg(socket_.get(), &message);
      if (result == -EAGAIN) {
        WHORL_TRY(wait(POLLIN));
      } else if (result <= 0) {
        return hung_up(static_cast<int>(result));
      } else {
        bytes = bytes.subspan(static_cast<std::size_t>(result));
      }
    }
    return {};
  }

  Attendant self_;
  Fd socket_;
  std::uint64_t deadline_ns_ = 0;
  std::uint32_t round_ = 0;
  std::array<std::byte, 16> salt_{};
  Status failed_;
};

/// The caller's own all-gather.
class CallbackOob final : public Oob {
 public:
  CallbackOob(const Allgather& function, const Attendant& self)
      : function_(function), self_(self) {}

  Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (mine.empty()) return {};
    const int result = function_.allgather(function_.context, mine.data(), all.data(), mine.size());
    if (result != 0) {
      return Status::error(
          Code::kRemoteError,
          fmt::format("rank {} of {}: the caller's all-gather function returned {}", self_.rank,
                      self_.nranks, result));
    }
    const auto own = all.subspan(static_cast<std::size_t>(self_.rank) * mine.size(), mine.size());
    if (!std::equal(mine.begin(), mine.end(), own.begin())) {
      return Status::error(
          Code::kInvalidUsage,
          fmt::format("rank {} of {}: the caller's all-gather function did not put "
                      "this rank's contribution at position {}: its ranks are not "
                      "in the communicator's order",
                      self_.rank, self_.nranks, self_.rank));
    }
    return {};
  }

  /// Rank 0 makes the identity; the others contribute zeros.
  Result<Identity> agree() {
    std::array<std::byte, sizeof(Identity)> mine{};
    if (self_.rank == 0) {
      if (const int result = sys().random_bytes(mine); result < 0) {
        return Status::error(Code::kSystemError,
                             fmt::format("getrandom failed: {}", errno_text(result)));
      }
    }
    std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(self_.nranks));
    WHORL_TRY(allgather(mine, all));
    Identity identity;
    std::memcpy(&identity, all.data(), sizeof identity);
    return identity;
  }

 private:
  Allgather function_;
  Attendant self_;
};

/// The key of `WHORL_SECRET_FILE`, if there is one.
Result<Digest> secret_from_file(const std::string& path) {
  const auto bad = [&](std::string_view what) {
    return Status::error(Code::kInvalidUsage, fmt::format("WHORL_SECRET_FILE={}: {}", path, what));
  };
  constexpr std::size_t kMinBytes = 16;
  constexpr std::size_t kMaxBytes = 4096;
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error) return bad(error.message());
  if (status.type() != fs::file_type::regular) return bad("this is not a regular file");
  constexpr fs::perms kOthers = fs::perms::group_all | fs::perms::others_all;
  if ((status.permissions() & kOthers) != fs::perms::none) {
    return bad("other users may access the file; run chmod 600 on it");
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxBytes) return bad("the file is larger than 4096 bytes");
  // Editors and echo add a newline, other tools do not.
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.size() < kMinBytes) {
    return bad("a secret needs at least 16 bytes; make one with: head -c 32 /dev/urandom | base64");
  }
  Digest key{};
  if (!sha256(std::as_bytes(std::span(text)), &key)) {
    return Status::error(Code::kInternalError, "SHA-256 failed");
  }
  return key;
}

/// How an address rendezvous is protected.
struct AddressSecret {
  Identity identity;
  bool loopback_only = false;
};

Result<AddressSecret> secret_for(std::string_view host_port,
                                 const std::vector<SocketAddress>& addresses) {
  AddressSecret out;
  Digest key{};
  if (const std::string path = param_text(Param::kSecretFile); !path.empty()) {
    const Result<Digest> from_file = secret_from_file(path);
    if (!from_file.ok()) return from_file.status();
    key = *from_file;
  } else {
    const Result<bool> insecure = param_bool(Param::kInsecure);
    if (!insecure.ok()) return insecure.status();
    out.loopback_only =
        std::all_of(addresses.begin(), addresses.end(),
                    [](const SocketAddress& address) { return address.is_loopback(); });
    if (!out.loopback_only && !*insecure) {
      return Status::error(
          Code::kInvalidUsage,
          fmt::format("a rendezvous at {} needs a secret, because other hosts can reach that "
                      "address: set WHORL_SECRET_FILE to a file of mode 0600 with the same "
                      "contents on all hosts, or WHORL_INSECURE=1 to let anybody join",
                      host_port));
    }
  }
  // The host may be spelt in several ways; the port is the same for all. The job depends on it
  // alone, so that two secrets meet as such, and fail at once, rather than as two jobs.
  const std::uint16_t port = addresses.front().port();
  const auto salt = std::as_bytes(std::span(&port, 1));
  Identity open;
  if (!derive_identity(Digest{}, salt, &open) || !derive_identity(key, salt, &out.identity)) {
    return Status::error(Code::kInternalError, "HMAC-SHA256 failed");
  }
  out.identity.job = open.job;
  return out;
}

/// Rank 0's listening socket. Where a secret protects it, it listens on all interfaces: what a name
/// resolves to on its own host (127.0.1.1, an outer address) is often not what others reach.
Result<Fd> listen_for_rendezvous(const std::vector<SocketAddress>& addresses, bool loopback_only) {
  std::vector<SocketAddress> candidates;
  if (!loopback_only) {
    candidates.push_back(SocketAddress::ipv6({}, addresses.front().port()));
    candidates.push_back(SocketAddress::ipv4({}, addresses.front().port()));
  }
  candidates.insert(candidates.end(), addresses.begin(), addresses.end());
  Status failure;
  for (const SocketAddress& candidate : candidates) {
    Result<Fd> socket = listen_at(candidate);
    if (socket.ok()) return socket;
    failure = socket.status();
  }
  return failure.with_context("rank 0 cannot open the rendezvous");
}

std::string root_name_for(std::string_view where) {
  return fmt::format("the root of the rendezvous ({})", where);
}

Status check(const Attendant& self) {
  if (self.nranks < 1 || static_cast<std::uint32_t>(self.nranks) > bootstrap::kMaxRanks ||
      self.rank < 0 || self.rank >= self.nranks) {
    return Status::error(Code::kInvalidArgument,
                         fmt::format("rank {} of {} ranks does not exist", self.rank, self.nranks));
  }
  return {};
}

} // namespace

Result<Rendezvous> meet_by_id(const UniqueId& id, const Attendant& self) {
  WHORL_TRY(check(self));
  return RootOob::connect(self, id.identity, id.addresses,
                          root_name_for("in the process that made the unique id"),
                          "the process that made the unique id has ended, or the id has been used "
                          "for a communicator before; make a new one for each communicator");
}

Result<Rendezvous> meet_by_address(std::string_view host_port, const Attendant& self) {
  WHORL_TRY(check(self));
  Result<std::vector<SocketAddress>> addresses = parse_address(host_port);
  if (!addresses.ok()) return addresses.status();
  const Result<AddressSecret> secret = secret_for(host_port, *addresses);
  if (!secret.ok()) return secret.status();
  if (self.rank == 0) {
    Result<Fd> listener = listen_for_rendezvous(*addresses, secret->loopback_only);
    if (!listener.ok()) return listener.status();
    const Result<SocketAddress> bound = bound_address(listener->get());
    if (!bound.ok()) return bound.status();
    WHORL_TRY(start_root_on(*std::move(listener), secret->identity, self.timeout_ns));
    if (!secret->loopback_only) {
      addresses->insert(addresses->begin(), SocketAddress::ipv4({127, 0, 0, 1}, bound->port()));
    }
  }
  return RootOob::connect(self, secret->identity, *std::move(addresses), root_name_for("in rank 0"),
                          ""); // rank 0 may start later
}

Result<Rendezvous> meet_by_store(const Store& store, const Attendant& self) {
  WHORL_TRY(check(self));
  if (store.set == nullptr || store.get == nullptr) {
    return Status::error(Code::kInvalidArgument, "the store has no set or no get function");
  }
  const std::string key = store.prefix + "whorl/unique_id";
  std::array<std::byte, UniqueId::kBytes> bytes{};
  if (self.rank == 0) {
    const Result<UniqueId> id = start_root();
    if (!id.ok()) return id.status();
    const Result<std::array<std::byte, UniqueId::kBytes>> encoded = id->encode();
    if (!encoded.ok()) return encoded.status();
    bytes = *encoded;
    const int result = store.set(store.context, key.c_str(), bytes.data(), bytes.size());
    if (result != 0) {
      return Status::error(
          Code::kSystemError,
          fmt::format("rank 0: the store's set function returned {} for key {}", result, key));
    }
  } else {
    std::size_t size = 0;
    const std::uint64_t timeout_ms =
        std::min<std::uint64_t>(self.timeout_ns / 1'000'000, INT32_MAX);
    const int result = store.get(store.context, key.c_str(), bytes.data(), bytes.size(), &size,
                                 static_cast<int>(timeout_ms));
    if (result != 0) {
      return Status::error(
          Code::kRemoteError,
          fmt::format("rank {} of {}: the store's get function returned {} for key {}: rank 0 has "
                      "perhaps not started",
                      self.rank, self.nranks, result, key));
    }
    if (size != bytes.size()) {
      return Status::error(Code::kInvalidUsage,
                           fmt::format("key {} of the store has {} bytes instead of {}: something "
                                       "else uses the same prefix",
                                       key, size, bytes.size()));
    }
  }
  const Result<UniqueId> id = UniqueId::decode(bytes);
  if (!id.ok()) return id.status().with_context(fmt::format("key {} of the store", key));
  return RootOob::connect(self, id->identity, id->addresses, root_name_for("in rank 0"),
                          fmt::format("rank 0 has ended, or key {} of the store is left from an "
                                      "earlier run; use another prefix for each communicator",
                                      key));
}

Result<Rendezvous> meet_by_allgather(const Allgather& function, const Attendant& self) {
  WHORL_TRY(check(self));
  if (function.allgather == nullptr) {
    return Status::error(Code::kInvalidArgument, "the all-gather function is NULL");
  }
  auto oob = std::make_unique<CallbackOob>(function, self);
  const Result<Identity> identity = oob->agree();
  if (!identity.ok()) return identity.status();
  return Rendezvous{std::move(oob), *identity};
}

} // namespace whorl
