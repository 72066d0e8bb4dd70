#include "launchers/pmi1.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <thread>
#include <utility>

namespace whorl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Server that replies to one client's lines with prepared answers, in order. An empty answer sends
/// nothing; after the last one the connection closes.
class Server {
 public:
  explicit Server(std::deque<std::string> answers) : answers_(std::move(answers)) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    client_fd_ = fds[0];
    thread_ = std::thread([this, fd = fds[1]] { serve(fd); });
  }
  ~Server() {
    if (client_fd_ >= 0) ::close(client_fd_);
    thread_.join();
  }
  Fd take_client() { return Fd(std::exchange(client_fd_, -1)); }
  /// Returns the client's lines, once the client has closed its connection.
  std::vector<std::string> lines() {
    thread_.join();
    thread_ = std::thread([] {});
    return lines_;
  }

 private:
  void serve(int fd) {
    std::string line;
    char c = 0;
    while (::read(fd, &c, 1) == 1) {
      if (c != '\n') {
        line += c;
        continue;
      }
      lines_.push_back(std::exchange(line, {}));
      if (answers_.empty()) break;
      // One byte at a time: answers need not arrive whole.
      for (const char& byte : answers_.front()) {
        if (::send(fd, &byte, 1, MSG_NOSIGNAL) != 1) break;
      }
      answers_.pop_front();
    }
    ::close(fd);
  }

  std::deque<std::string> answers_;
  std::vector<std::string> lines_;
  int client_fd_ = -1;
  std::thread thread_;
};

const std::deque<std::string> kGreeting{
    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
    "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n", "cmd=my_kvsname kvsname=kvs_7\n"};
constexpr const char* kGoodbye = "cmd=finalize_ack\n";
constexpr std::int64_t kTimeoutMs = 10'000;

std::deque<std::string> greeting_and(const std::deque<std::string>& more) {
  std::deque<std::string> answers = kGreeting;
  answers.insert(answers.end(), more.begin(), more.end());
  return answers;
}

std::unique_ptr<Pmi1> connected(Server& server) {
  Result<std::unique_ptr<Pmi1>> client = Pmi1::connect(server.take_client(), kTimeoutMs);
  EXPECT_TRUE(client.ok()) << client.status().message();
  return client.ok() ? *std::move(client) : nullptr;
}

TEST(Pmi1, SpeaksTheProtocol) {
  Server server(greeting_and({"cmd=put_result rc=0 msg=success\n", "cmd=barrier_out\n",
                              "cmd=get_result rc=0 msg=success value=1.00ff\n", kGoodbye}));
  auto client = connected(server);
  ASSERT_NE(client, nullptr);
  const std::vector<std::byte> value{std::byte{0}, std::byte{255}};
  EXPECT_TRUE(client->set("k", value).ok());
  EXPECT_TRUE(client->fence(kTimeoutMs).ok());
  const Result<std::vector<std::byte>> got = client->get(0, "k", kTimeoutMs);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(*got, value);
  client.reset();
  EXPECT_THAT(server.lines(),
              ElementsAre("cmd=init pmi_version=1 pmi_subversion=1", "cmd=get_maxes",
                          "cmd=get_my_kvsname", "cmd=put kvsname=kvs_7 key=k-0 value=1.00ff",
                          "cmd=barrier_in", "cmd=get kvsname=kvs_7 key=k-0", "cmd=finalize"));
}

TEST(Pmi1, LongValuesTravelInPieces) {
  std::deque<std::string> answers = kGreeting;
  for (int i = 0; i < 4; ++i) answers.emplace_back("cmd=put_result rc=0\n");
  for (int i = 0; i < 4; ++i) {
    answers.push_back("cmd=get_result rc=0 value=4." + std::string(512, '7') + "\n");
  }
  answers.emplace_back(kGoodbye);
  Server server(answers);
  auto client = connected(server);
  ASSERT_NE(client, nullptr);
  const std::vector<std::byte> value(1024, std::byte{0x77});
  EXPECT_TRUE(client->set("k", value).ok());
  const Result<std::vector<std::byte>> got = client->get(0, "k", kTimeoutMs);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(*got, value);
  EXPECT_FALSE(client->set("l", std::vector<std::byte>(1025)).ok());
  client.reset();
  for (const std::string& line : server.lines()) EXPECT_LT(line.size(), 1024u);
}

TEST(Pmi1, BadAnswersAreErrors) {
  for (const char* answer :
       {"cmd=get_result rc=-1 msg=key_not_found value=unknown\n", "cmd=get_result rc=0\n",
        "cmd=get_result rc=0 value=zz\n", "cmd=get_result rc=0 value=1.0\n",
        "cmd=get_result rc=0 value=1.0g\n", "cmd=get_result rc=0 value=99.00\n",
        "cmd=barrier_out\n", "\n", "= =\n", "cmd=\x1b[31m\n"}) {
    Server server(greeting_and({answer, kGoodbye}));
    auto client = connected(server);
    ASSERT_NE(client, nullptr);
    const auto got = client->get(0, "k", kTimeoutMs);
    ASSERT_FALSE(got.ok()) << answer;
    EXPECT_EQ(got.status().message().find('\x1b'), std::string::npos) << "a control character";
  }
}

TEST(Pmi1, TooLongAValueIsAnError) {
  Server server(greeting_and(
      {"cmd=get_result rc=0 value=1." + std::string(2 * KeyValue::kMaxValueBytes + 2, '7') + "\n",
       kGoodbye}));
  auto client = connected(server);
  ASSERT_NE(client, nullptr);
  EXPECT_THAT(client->get(0, "k", kTimeoutMs).status().message(), HasSubstr("too long"));
}

TEST(Pmi1, AnEndlessLineIsAnError) {
  Server server({std::string(10'000, 'x')});
  const auto client = Pmi1::connect(server.take_client(), kTimeoutMs);
  ASSERT_FALSE(client.ok());
  EXPECT_THAT(client.status().message(), HasSubstr("never ends"));
}

TEST(Pmi1, AServerThatClosesIsAnError) {
  Server server({});
  const auto client = Pmi1::connect(server.take_client(), kTimeoutMs);
  ASSERT_FALSE(client.ok());
  EXPECT_THAT(client.status().message(), HasSubstr("PMI-1 \"cmd=init"));
}

TEST(Pmi1, ASilentServerIsAnErrorAndALateAnswerIsNotTakenForAnother) {
  Server server(greeting_and({"", "cmd=barrier_out\ncmd=finalize_ack\n"}));
  auto client = connected(server);
  ASSERT_NE(client, nullptr);
  const Status late = client->fence(50);
  ASSERT_FALSE(late.ok());
  EXPECT_THAT(late.message(), HasSubstr("within 50 ms"));
  EXPECT_THAT(client->fence(kTimeoutMs).message(), HasSubstr("an earlier exchange"));
  client.reset();
  EXPECT_EQ(server.lines().back(), "cmd=finalize");
}

TEST(Pmi1, ServersWithShortValuesAreRefused) {
  Server server(
      {kGreeting[0], "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=512\n", kGoodbye});
  const auto client = Pmi1::connect(server.take_client(), kTimeoutMs);
  ASSERT_FALSE(client.ok());
  EXPECT_THAT(client.status().message(), HasSubstr("values of 512 characters"));
}

TEST(Pmi1, OpenNamesTheVariable) {
  int unused = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(unused, 0);
  ::close(unused);
  const Result<KeyValue*> closed = open_pmi1(unused);
  ASSERT_FALSE(closed.ok());
  EXPECT_THAT(closed.status().message(), HasSubstr("PMI_FD="));
  // An open descriptor that is not a socket.
  unused = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const Result<KeyValue*> no_socket = open_pmi1(unused);
  ::close(unused);
  ASSERT_FALSE(no_socket.ok());
  EXPECT_THAT(no_socket.status().message(), HasSubstr("PMI_FD"));
}

} // namespace
} // namespace whorl
