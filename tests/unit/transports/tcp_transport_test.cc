#include "transports/tcp/transport.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/wait.h"

namespace whorl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr WaitPolicy kPolicy{
    .timeout_ns = 20'000'000'000, .spins = 20, .yield_ns = 20'000, .block_ns = 1'000'000};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Rank with its transport.
struct Rank {
  CommError comm_error;
  Membership membership;
  std::unique_ptr<TcpTransport> transport = std::make_unique<TcpTransport>();

  Endpoint& to(int peer, int channel = 0) { return *transport->endpoint(peer, channel); }
  void send(int peer, std::string_view text) {
    std::span<std::byte> slot;
    ASSERT_EQ(WaitResult::kReady, wait([&] {
                slot = to(peer).try_reserve();
                return slot.empty() ? to(peer).progress() : Progress::kDone;
              }));
    std::memcpy(slot.data(), text.data(), text.size());
    to(peer).commit(text.size(), {});
    ASSERT_EQ(WaitResult::kReady,
              wait([&] { return to(peer).flushed() ? Progress::kDone : to(peer).progress(); }));
  }
  /// Returns the next message, or "" with the error set.
  std::string receive(int peer) {
    Message message;
    wait([&] {
      message = to(peer).try_peek();
      return message ? Progress::kDone : to(peer).progress();
    });
    if (!message) return "";
    std::string text(reinterpret_cast<const char*>(message.data), message.bytes);
    to(peer).release();
    return text;
  }
  template <class Attempt>
  WaitResult wait(Attempt&& attempt) {
    return wait_until(attempt, kPolicy, comm_error, *transport);
  }
};

/// Ranks that listen, with all PeerInfos; connect() is still to be called.
struct World {
  explicit World(int nranks) {
    std::vector<PeerInfo> peers(static_cast<std::size_t>(nranks));
    for (int rank = 0; rank < nranks; ++rank) {
      ranks.push_back(std::make_unique<Rank>());
      const auto address = ranks.back()->transport->listen({});
      EXPECT_TRUE(address.ok()) << address.status().message();
      PeerInfo& info = peers[static_cast<std::size_t>(rank)];
      info.rank = static_cast<std::uint32_t>(rank);
      info.process_id = 1000 + static_cast<std::uint32_t>(rank);
      std::strcpy(info.host_name.data(), "here");
      EXPECT_LE(address->size(), kMaxAddressBytes);
      info.addresses[1].size = static_cast<std::uint32_t>(address->size());
      std::memcpy(info.addresses[1].bytes.data(), address->data(), address->size());
    }
    for (int rank = 0; rank < nranks; ++rank) {
      Membership& membership = (*this)[rank].membership;
      membership.rank = rank;
      membership.nranks = nranks;
      membership.identity.secret.fill(std::byte{5});
      membership.peers = peers;
      membership.slot_bytes = 4096;
      membership.timeout_ns = 20'000'000'000;
      membership.comm_error = &(*this)[rank].comm_error;
    }
  }
  Rank& operator[](int rank) { return *ranks[static_cast<std::size_t>(rank)]; }
  Status connect(int rank) {
    std::vector<int> peers;
    for (int peer = 0; peer < static_cast<int>(ranks.size()); ++peer) {
      if (peer != rank) peers.push_back(peer);
    }
    return (*this)[rank].transport->connect((*this)[rank].membership, peers, 1);
  }
  /// Connects each rank in a thread, then calls `body`.
  void run(const std::function<void(int, Rank&)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
      threads.emplace_back([&, rank] {
        const Status status = connect(rank);
        ASSERT_TRUE(status.ok()) << status.message();
        body(rank, (*this)[rank]);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<std::unique_ptr<Rank>> ranks;
};

TEST(TcpTransport, EveryPairAndChannelIsConnected) {
  World world(4);
  world.run([](int rank, Rank& self) {
    for (int peer = 0; peer < 4; ++peer) {
      if (peer == rank) {
        EXPECT_EQ(nullptr, self.transport->endpoint(peer, 0));
        continue;
      }
      EXPECT_EQ(nullptr, self.transport->endpoint(peer, 2));
      EXPECT_EQ(nullptr, self.transport->endpoint(peer, -1));
      for (int channel = 0; channel < 2; ++channel) {
        Endpoint& endpoint = self.to(peer, channel);
        const int text[3] = {rank, peer, channel};
        std::memcpy(endpoint.try_reserve().data(), text, sizeof text);
        endpoint.commit(sizeof text, {});
      }
    }
    for (int peer = 0; peer < 4; ++peer) {
      for (int channel = 0; channel < 2 && peer != rank; ++channel) {
        Message message;
        ASSERT_EQ(WaitResult::kReady, self.wait([&] {
          message = self.to(peer, channel).try_peek();
          return message ? Progress::kDone : Progress::kIdle;
        }));
        int text[3];
        ASSERT_EQ(sizeof text, message.bytes);
        std::memcpy(text, message.data, sizeof text);
        EXPECT_EQ(peer, text[0]);
        EXPECT_EQ(rank, text[1]);
        EXPECT_EQ(channel, text[2]);
      }
    }
  });
}

TEST(TcpTransport, SleepingRanksAreWoken) {
  World world(2);
  world.run([](int rank, Rank& self) {
    for (int i = 0; i < 200; ++i) {
      if (rank == 0) self.send(1, "ping");
      ASSERT_EQ("ping", self.receive(1 - rank)) << self.comm_error.status().message();
      if (rank == 1) self.send(0, "ping");
    }
  });
}

TEST(TcpTransport, ASleepingRankIsWokenWhenThereIsRoomAgain) {
  World world(2);
  std::atomic<bool> full{false};
  world.run([&](int rank, Rank& self) {
    const std::string text(4096, 'x');
    constexpr int kMessages = 4000; // more than the buffers of two sockets hold
    const auto start = Clock::now();
    if (rank == 1) {
      do {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
      } while (!full && seconds_since(start) < 30);
      for (int i = 0; i < kMessages; ++i) {
        ASSERT_EQ(text, self.receive(0)) << self.comm_error.status().message();
      }
      return;
    }
    for (int i = 0; i < kMessages; ++i) {
      Endpoint& endpoint = self.to(1);
      while (endpoint.try_reserve().empty()) {
        if (endpoint.progress() != Progress::kIdle) continue;
        full = true;
        self.transport->block(60'000'000'000);
      }
      std::memcpy(endpoint.try_reserve().data(), text.data(), text.size());
      endpoint.commit(text.size(), {});
    }
    while (!self.to(1).flushed()) {
      if (self.to(1).progress() == Progress::kIdle) self.transport->block(60'000'000'000);
    }
    EXPECT_TRUE(full);
    EXPECT_LT(seconds_since(start), 30);
  });
}

TEST(TcpTransport, WhatWasSentBeforeLeavingArrives) {
  World world(2);
  world.run([](int rank, Rank& self) {
    if (rank == 0) {
      self.send(1, "first");
      self.send(1, "last");
      self.transport.reset();
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_EQ("first", self.receive(0)) << self.comm_error.status().message();
    EXPECT_EQ("last", self.receive(0)) << self.comm_error.status().message();
    EXPECT_FALSE(self.comm_error.is_set()) << "a goodbye is no error";
    EXPECT_EQ("", self.receive(0));
    EXPECT_NE(std::string::npos, self.comm_error.status().message().find(
                                     "rank 0 (host here, pid 1000) has destroyed its communicator"))
        << self.comm_error.status().message();
  });
}

TEST(TcpTransport, UnreadDataOfTheLeaverDoesNotHurtItsLastWords) {
  World world(2);
  world.run([](int rank, Rank& self) {
    self.send(1 - rank, "words");
    if (rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30)); // rank 1's error has arrived
      self.transport.reset();
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(80));
    EXPECT_EQ("words", self.receive(0)) << self.comm_error.status().message();
  });
}

TEST(TcpTransport, AGoodbyeOfAnUninvolvedRankDisturbsNobody) {
  World world(3);
  world.run([](int rank, Rank& self) {
    if (rank == 2) {
      self.transport.reset();
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (int i = 0; i < 50; ++i) {
      if (rank == 0) self.send(1, "x");
      ASSERT_EQ("x", self.receive(1 - rank)) << self.comm_error.status().message();
      if (rank == 1) self.send(0, "x");
    }
    self.transport->poll_failures(0);
    EXPECT_FALSE(self.comm_error.is_set());
  });
}

TEST(TcpTransport, AnErrorReachesEveryRank) {
  World world(4);
  world.run([](int rank, Rank& self) {
    if (rank == 1) {
      self.transport->notify_peers(Status::error(Code::kInvalidUsage, "counts\x1b differ"));
      self.transport->notify_peers(Status::error(Code::kSystemError, "second"));
      self.transport.reset();
      return;
    }
    EXPECT_EQ("", self.receive((rank + 2) % 4 == 1 ? 0 : (rank + 2) % 4));
    EXPECT_EQ(Code::kRemoteError, self.comm_error.status().code());
    EXPECT_EQ("rank 1 (host here, pid 1001) gave up: counts  differ",
              self.comm_error.status().message());
  });
}

TEST(TcpTransport, AnOverlongErrorIsCut) {
  World world(2);
  world.run([](int rank, Rank& self) {
    if (rank == 0) {
      self.transport->notify_peers(Status::error(Code::kInternalError, std::string(100'000, 'x')));
      EXPECT_FALSE(self.comm_error.is_set());
      return;
    }
    EXPECT_EQ("", self.receive(0));
    EXPECT_EQ(Code::kRemoteError, self.comm_error.status().code());
    EXPECT_LT(self.comm_error.status().message().size(), 2000U);
  });
}

TEST(TcpTransport, AMissingPeerIsNamed) {
  World world(3);
  world[0].membership.timeout_ns = 200'000'000;
  const Status status = world.connect(0);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(std::string::npos, status.message().find("rank 2 (host here, pid 1002)"));
}

TEST(TcpTransport, AMalformedAddressIsAnError) {
  World world(2);
  for (const std::size_t size : {0U, 1U, 5U, 20U, 192U}) {
    PeerInfo::Address& address = world[1].membership.peers[0].addresses[1];
    address.bytes.fill(std::byte{1});
    address.size = static_cast<std::uint32_t>(size);
    const Status status = world.connect(1);
    ASSERT_FALSE(status.ok()) << size;
    EXPECT_EQ(Code::kInternalError, status.code());
  }
}

TEST(TcpTransport, IdleDataSocketsAreProbed) {
  World world(2);
  world.run([](int rank, Rank& self) {
    for (const int channel : {0, 1}) {
      const int fd = dynamic_cast<TcpEndpoint&>(self.to(1 - rank, channel)).fd();
      const auto option = [&](int level, int name) {
        int value = 0;
        socklen_t size = sizeof value;
        EXPECT_GE(sys().getsockopt(fd, level, name, &value, &size), 0);
        return value;
      };
      EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
      // Firewalls forget connections after some minutes; a lost probe is repeated.
      EXPECT_LE(option(IPPROTO_TCP, TCP_KEEPIDLE), 60);
      EXPECT_LE(option(IPPROTO_TCP, TCP_KEEPINTVL), 10);
      EXPECT_GE(option(IPPROTO_TCP, TCP_KEEPCNT), 6);
    }
  });
}

TEST(TcpTransport, UnconnectedTransportsAreHarmless) {
  TcpTransport transport;
  transport.notify_peers(Status::error(Code::kInternalError, "x"));
  transport.poll_failures(0);
  transport.block(1000);
  EXPECT_EQ(nullptr, transport.endpoint(0, 0));
}

/// Checks the error after rank 1, in a process of its own, ends in the given way.
void dies(const std::function<void()>& end, const std::string& expected) {
  World world(2);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!world.connect(1).ok()) ::_exit(3);
    world[1].send(0, "alive");
    end();
    ::_exit(4);
  }
  const Status status = world.connect(0);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ("alive", world[0].receive(1)) << world[0].comm_error.status().message();
  const auto start = Clock::now();
  EXPECT_EQ("", world[0].receive(1));
  EXPECT_LT(seconds_since(start), 5);
  EXPECT_NE(std::string::npos, world[0].comm_error.status().message().find(expected))
      << world[0].comm_error.status().message();
  EXPECT_EQ(Code::kRemoteError, world[0].comm_error.status().code());
  ASSERT_EQ(child, ::waitpid(child, nullptr, 0));
}

TEST(TcpTransport, AKilledRankIsNamed) {
  dies([] { ::raise(SIGKILL); }, "rank 1 (host here, pid 1001) died");
}

TEST(TcpTransport, ARankThatExitsWithoutAWordIsNamed) {
  dies([] { ::_exit(0); }, "rank 1 (host here, pid 1001) died");
}

TEST(TcpTransportSlow, ALateReaderIsNotTakenForDead) {
  // The receiver's window stays closed for longer than the time after which a silent peer counts as
  // dead.
  World world(2);
  world.run([](int rank, Rank& self) {
    const std::string text(4096, 'x');
    constexpr int kMessages = 5000;
    if (rank == 0) {
      for (int i = 0; i < kMessages; ++i) self.send(1, text);
      EXPECT_EQ("done", self.receive(1)) << self.comm_error.status().message();
      return;
    }
    std::this_thread::sleep_for(std::chrono::seconds(6));
    for (int i = 0; i < kMessages; ++i) {
      ASSERT_EQ(text, self.receive(0)) << self.comm_error.status().message();
    }
    self.send(0, "done");
  });
}

} // namespace
} // namespace whorl
