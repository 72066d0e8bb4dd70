#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/root.h"
#include "net/listener.h"
#include "tests/support/scoped_env.h"

/// Helpers of the tests of the rendezvous.
namespace whorl {

using test::ScopedEnv;
using Clock = std::chrono::steady_clock;

/// Returns a system that outlives the program, because the thread of an earlier root may
/// still use it after a test.
template <class Kind, class... Arguments>
Kind& lasting(Arguments... arguments) {
  static auto* const all = new std::deque<Kind>; // never destroyed
  return all->emplace_back(arguments...);
}

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline SocketAddress loopback() { return SocketAddress::ipv4({127, 0, 0, 1}, 0); }

/// Port of this host on which nothing listens, nor on the unix socket that replaces it on loopback.
/// The kernel assigns the port to no other socket meanwhile.
class ReservedPort {
 public:
  ReservedPort() {
    do {
      socket_ = Fd(sys().socket(AF_INET, SOCK_STREAM));
      const SocketAddress any = SocketAddress::ipv4({}, 0);
      EXPECT_EQ(0, sys().setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, 1));
      EXPECT_EQ(0, sys().bind(socket_.get(), any.data(), any.size()));
    } while (!bind_at(SocketAddress::unix_name("whorl." + text())).ok());
  }
  SocketAddress address() const {
    return SocketAddress::ipv4({127, 0, 0, 1}, bound_address(socket_.get())->port());
  }
  std::string text() const { return std::to_string(address().port()); }

 private:
  Fd socket_;
};

/// Starts a root on loopback and returns its id.
inline UniqueId loopback_root(std::uint64_t join_timeout_ns = 60'000'000'000) {
  Result<Fd> listener = listen_at(loopback());
  EXPECT_TRUE(listener.ok()) << listener.status().message();
  UniqueId id;
  static std::atomic<std::uint32_t> jobs{0}; // an id makes only one communicator
  const std::uint32_t job = ++jobs;
  std::memcpy(id.identity.job.data(), &job, sizeof job);
  id.identity.secret.fill(std::byte{2});
  id.addresses = {*bound_address(listener->get())};
  std::vector<Fd> listeners;
  listeners.push_back(*std::move(listener));
  const Status started = start_root_on(
      std::move(listeners), id.identity,
      {.join_timeout_ns = join_timeout_ns, .same_user = false, .port_is_users = true});
  EXPECT_TRUE(started.ok()) << started.message();
  return id;
}

inline Attendant attendant(int rank, int nranks, double timeout_s = 30) {
  Attendant self;
  self.rank = rank;
  self.nranks = nranks;
  self.timeout_ns = static_cast<std::uint64_t>(timeout_s * 1e9);
  return self;
}

inline void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

/// Makes one all-gather of `size` bytes and checks the result.
inline void exchange(Oob& oob, int rank, int nranks, std::size_t size, int round) {
  const auto value = [&](int r, std::size_t i) {
    return static_cast<std::byte>((r * 31 + round * 7 + static_cast<int>(i)) & 255);
  };
  std::vector<std::byte> mine(size);
  for (std::size_t i = 0; i < size; ++i) mine[i] = value(rank, i);
  std::vector<std::byte> all(size * static_cast<std::size_t>(nranks));
  const Status status = oob.allgather(mine, all);
  ASSERT_TRUE(status.ok()) << status.message();
  for (int r = 0; r < nranks; ++r) {
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_EQ(value(r, i), all[static_cast<std::size_t>(r) * size + i]) << r << " " << i;
    }
  }
}

/// Lets all ranks meet, exchange data and compare their identities.
inline void meet(int nranks, const std::function<Result<Rendezvous>(int)>& join) {
  std::vector<Identity> identities(static_cast<std::size_t>(nranks));
  in_threads(nranks, [&](int rank) {
    Result<Rendezvous> rendezvous = join(rank);
    ASSERT_TRUE(rendezvous.ok()) << rendezvous.status().message();
    exchange(*rendezvous->oob, rank, nranks, 900, 0);
    exchange(*rendezvous->oob, rank, nranks, 1, 1);
    exchange(*rendezvous->oob, rank, nranks, 0, 2);
    identities[static_cast<std::size_t>(rank)] = rendezvous->identity;
  });
  for (const Identity& identity : identities) {
    EXPECT_EQ(identities[0].secret, identity.secret);
    EXPECT_EQ(identities[0].job, identity.job);
    EXPECT_NE(decltype(identity.secret){}, identity.secret);
  }
}

} // namespace whorl
