// Tests of the rendezvous at "host:port" and of its secret file.
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/bootstrap/support.h"

namespace whorl {
namespace {

TEST(MeetByAddress, OnLoopbackWithoutASecret) {
  const ReservedPort reserved;
  const std::string port = reserved.text();
  for (int repetition = 0; repetition < 3; ++repetition) { // the port is free again each time
    meet(3, [&](int rank) {
      return meet_by_address((rank == 1 ? "localhost:" : "127.0.0.1:") + port, attendant(rank, 3));
    });
  }
}

TEST(MeetByAddress, OtherAddressesNeedASecret) {
  const Result<Rendezvous> refused = meet_by_address("192.0.2.77:4000", attendant(1, 2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(Code::kInvalidUsage, refused.status().code());
  EXPECT_TRUE(contains(refused.status().message(), "WHORL_SECRET_FILE"));
}

class SecretFile : public testing::Test {
 protected:
  void write(const std::string& text, mode_t mode) {
    std::ofstream(path_) << text;
    ASSERT_EQ(0, ::chmod(path_.c_str(), mode));
  }
  void TearDown() override { ::unlink(path_.c_str()); }
  Status try_it() {
    const ScopedEnv variable{{"WHORL_SECRET_FILE", path_}};
    const ReservedPort reserved;
    const Result<Rendezvous> out =
        meet_by_address("127.0.0.1:" + reserved.text(), attendant(0, 1, 10));
    return out.status();
  }
  std::string path_ = testing::TempDir() + "whorl_secret_" + std::to_string(::getpid());
};

TEST_F(SecretFile, OpensAMeeting) {
  write("a secret of more than 16 bytes\n", 0600);
  const ReservedPort reserved;
  const std::string address = "127.0.0.1:" + reserved.text();
  const ScopedEnv variable{{"WHORL_SECRET_FILE", path_}};
  meet(2, [&](int rank) { return meet_by_address(address, attendant(rank, 2)); });
}

TEST_F(SecretFile, KeepsOthersOut) {
  write("a secret of more than 16 bytes\n", 0600);
  const ReservedPort reserved;
  const std::string port = reserved.text();
  CommError comm_error;
  std::thread rank0;
  {
    const ScopedEnv variable{{"WHORL_SECRET_FILE", path_}};
    rank0 = std::thread([&] {
      Attendant self = attendant(0, 2);
      self.comm_error = &comm_error;
      EXPECT_FALSE(meet_by_address("127.0.0.1:" + port, self).ok());
    });
    // An open socket shows that the environment has been read.
    const SocketAddress name = SocketAddress::unix_name("whorl." + port);
    for (int i = 0; i < 5000; ++i) {
      const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(probe.get(), name.data(), name.size()) == 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  const Result<Rendezvous> other = meet_by_address("127.0.0.1:" + port, attendant(1, 2));
  comm_error.set(Status::error(Code::kInvalidUsage, "enough"));
  rank0.join();
  ASSERT_FALSE(other.ok());
  EXPECT_TRUE(contains(other.status().message(), "wrong secret")) << other.status().message();
}

TEST_F(SecretFile, IsCheckedBeforeUse) {
  write("a secret of more than 16 bytes", 0640);
  EXPECT_TRUE(contains(try_it().message(), "chmod 600"));
  write("short", 0600);
  EXPECT_TRUE(contains(try_it().message(), "at least 16 bytes"));
  write(std::string(5000, 'x'), 0600);
  EXPECT_TRUE(contains(try_it().message(), "larger than"));
  ::unlink(path_.c_str());
  EXPECT_TRUE(contains(try_it().message(), "No such file"));
}

TEST(MeetByAddress, ABusyPortIsNamedWithTheRemedy) {
  const ReservedPort reserved;
  const Result<Fd> busy = listen_at(SocketAddress::unix_name("whorl." + reserved.text()));
  ASSERT_TRUE(busy.ok()) << busy.status().message();
  const std::string address = "127.0.0.1:" + reserved.text();
  const Result<Rendezvous> rendezvous = meet_by_address(address, attendant(0, 2, 1));
  ASSERT_FALSE(rendezvous.ok());
  const std::string& text = rendezvous.status().message();
  for (const std::string& part : {"the rendezvous " + address, "pid " + std::to_string(::getpid()),
                                  std::string("choose another port")}) {
    EXPECT_TRUE(contains(text, part)) << text;
  }
}

TEST(MeetByAddress, WhoseCreationIsAbortedBeforeItBeginsWaitsForNoRoot) {
  const ReservedPort reserved;
  CommError aborted;
  aborted.set(Status::error(Code::kInvalidUsage, "aborted"));
  Attendant self = attendant(1, 2);
  self.comm_error = &aborted;
  const std::uint64_t began = sys().now_ns();
  EXPECT_FALSE(meet_by_address("127.0.0.1:" + reserved.text(), self).ok());
  EXPECT_LT(sys().now_ns() - began, 2 * kTellNs);
}

/// Name service that knows a host only after some questions.
class LateNames final : public System {
 public:
  LateNames(int error, int failures) : error_(error), failures_(failures) {}
  int getaddrinfo(const char* host, const char* port, const addrinfo& hints,
                  addrinfo** list) noexcept override {
    if (std::strcmp(host, "trainer-0") != 0) return System::getaddrinfo(host, port, hints, list);
    if (++questions <= failures_) return error_;
    return System::getaddrinfo("127.0.0.1", port, hints, list);
  }
  std::atomic<int> questions{0};

 private:
  const int error_, failures_;
};

TEST(MeetByAddress, AtANameThatTheNameServiceLearnsLater) {
  for (const int error : {EAI_NONAME, EAI_AGAIN}) {
    auto& names = lasting<LateNames>(error, 2);
    const ScopedSystem scope(&names);
    const ReservedPort reserved;
    const std::string port = reserved.text();
    meet(2, [&](int rank) {
      return meet_by_address((rank == 0 ? "127.0.0.1:" : "trainer-0:") + port, attendant(rank, 2));
    });
    EXPECT_EQ(names.questions.load(), 3);
  }
}

TEST(MeetByAddress, SaysAtTheTimeoutWhatTheNameServiceAnswers) {
  auto& names = lasting<LateNames>(EAI_AGAIN, 1'000'000);
  const ScopedSystem scope(&names);
  Attendant self = attendant(1, 2);
  self.timeout_ns = 300'000'000;
  const Status late = meet_by_address("trainer-0:4000", self).status();
  EXPECT_TRUE(contains(late.message(), "rank 1 of 2 has asked for ")) << late.message();
  EXPECT_TRUE(contains(late.message(), gai_strerror(EAI_AGAIN))) << late.message();
  EXPECT_GT(names.questions.exchange(0), 1);
  EXPECT_FALSE(meet_by_address("trainer-0:4000", attendant(0, 2)).ok());
  EXPECT_EQ(names.questions.load(), 1) << "rank 0 knows its own name at once, or not at all";
}

/// Name service that takes as long to answer as a rank waits, on a clock that it sets forward.
class SlowNames final : public System {
 public:
  std::uint64_t now_ns() noexcept override { return System::now_ns() + passed_ns.load(); }
  int getaddrinfo(const char* host, const char* port, const addrinfo& hints,
                  addrinfo** list) noexcept override {
    passed_ns += kAnswerNs;
    return System::getaddrinfo(host, port, hints, list);
  }
  static constexpr std::uint64_t kAnswerNs = 20'000'000'000;
  std::atomic<std::uint64_t> passed_ns{0};
};

TEST(MeetByAddress, TheTimeForALookupIsPartOfTheTimeout) {
  auto& names = lasting<SlowNames>();
  const ScopedSystem scope(&names);
  const ReservedPort reserved;
  Attendant self = attendant(1, 2);
  self.timeout_ns = SlowNames::kAnswerNs;
  const std::uint64_t began_ns = sys().now_ns();
  const Status absent = meet_by_address("127.0.0.1:" + reserved.text(), self).status();
  EXPECT_TRUE(contains(absent.message(), "at the deadline")) << absent.message();
  EXPECT_LT(sys().now_ns() - began_ns, 2 * self.timeout_ns);
}

TEST(MeetByAddress, ALookupEndsWithTheCreation) {
  auto& names = lasting<LateNames>(EAI_NONAME, 1'000'000);
  const ScopedSystem scope(&names);
  CommError comm_error;
  Attendant self = attendant(1, 2);
  self.comm_error = &comm_error;
  std::thread aborts([&] {
    while (names.questions.load() == 0) std::this_thread::yield();
    comm_error.set(Status::error(Code::kInvalidUsage, "aborted"));
  });
  const Status aborted = meet_by_address("trainer-0:4000", self).status();
  aborts.join();
  EXPECT_EQ(aborted.message(), "aborted");
  self.comm_error = nullptr;
  self.check = [] { return Status::error(Code::kRemoteError, "rank 0 has ended"); };
  EXPECT_EQ(meet_by_address("trainer-0:4000", self).status().message(), "rank 0 has ended");
}

/// Returns whether a socket listens at the address.
bool is_open(const SocketAddress& address) {
  const Fd probe(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  return ::connect(probe.get(), address.data(), address.size()) == 0;
}

/// Returns those of `candidates` that are open at rank 0 while it waits for another rank.
std::vector<std::string> open_doors(const std::string& host_port,
                                    const std::vector<SocketAddress>& candidates) {
  std::vector<std::string> open;
  CommError comm_error;
  std::thread rank0([&] {
    Attendant self = attendant(0, 2);
    self.comm_error = &comm_error;
    EXPECT_FALSE(meet_by_address(host_port, self).ok());
  });
  const std::string port = host_port.substr(host_port.rfind(':') + 1);
  for (int i = 0; i < 5000 && !is_open(SocketAddress::unix_name("whorl." + port)); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (const SocketAddress& candidate : candidates) {
    if (is_open(candidate)) open.push_back(candidate.text());
  }
  comm_error.set(Status::error(Code::kInvalidUsage, "enough"));
  rank0.join();
  return open;
}

/// Returns all addresses of this host, with the port.
std::vector<SocketAddress> own_addresses(std::uint16_t port) {
  std::vector<SocketAddress> own = *local_addresses();
  own.push_back(SocketAddress::ipv4({127, 0, 0, 1}, 0));
  for (SocketAddress& address : own) address.set_port(port);
  return own;
}

TEST(MeetByAddress, OnLoopbackNoPortIsOpened) {
  const ReservedPort reserved;
  EXPECT_EQ(std::vector<std::string>{},
            open_doors("localhost:" + reserved.text(), own_addresses(reserved.address().port())));
}

TEST_F(SecretFile, OnlyTheAddressThatIsNamedIsOpened) {
  write("a secret of more than 16 bytes", 0600);
  const ScopedEnv variable{{"WHORL_SECRET_FILE", path_}};
  const ReservedPort reserved;
  const auto own = own_addresses(reserved.address().port());
  if (own.front().is_loopback()) GTEST_SKIP() << "this host has no address but loopback";
  EXPECT_EQ(std::vector<std::string>{own.front().text()}, open_doors(own.front().text(), own));
}

} // namespace
} // namespace whorl
