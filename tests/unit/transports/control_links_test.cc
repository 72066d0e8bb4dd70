// Tests of what a member may do to another one over a control connection.
#include "transports/control/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <vector>

namespace whorl {
namespace {

/// Rank 0 of 2, and the socket with which a test speaks as rank 1.
class ControlLinksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
    peer_ = Fd(fds[1]);
    members_.nranks = 2;
    members_.peers.resize(2);
    members_.comm_error = &comm_error_;
    std::vector<MeshLink> mesh;
    mesh.push_back({.rank = 1,
                    .role = SocketRole::kControl,
                    .channel = 0,
                    .socket = StreamSocket(Fd(fds[0])),
                    .via = ""});
    const NoOptions scope;
    ASSERT_TRUE(links_.adopt(members_, mesh, "TCP").ok());
  }
  void say(control::FrameKind kind, const std::string& text) {
    control::FrameHeader header;
    header.kind = static_cast<std::uint16_t>(kind);
    header.text_bytes = static_cast<std::uint32_t>(text.size());
    std::string frame(sizeof header, ' ');
    std::memcpy(frame.data(), &header, sizeof header);
    frame += text;
    ASSERT_EQ(static_cast<ssize_t>(frame.size()),
              ::send(peer_.get(), frame.data(), frame.size(), MSG_NOSIGNAL));
  }

  /// Scope in which the options of TCP can be set on other sockets.
  class NoOptions final : public System {
   public:
    NoOptions() : scope_(this) {}
    int setsockopt(int, int, int, int) noexcept override { return 0; }

   private:
    ScopedSystem scope_;
  };

  CommError comm_error_;
  Membership members_;
  ControlLinks links_;
  Fd peer_;
};

TEST_F(ControlLinksTest, WordsArriveInOrder) {
  std::vector<std::string> words;
  say(control::FrameKind::kWord, "one");
  say(control::FrameKind::kWord, "two");
  links_.poll({}, [&](int, std::span<const std::byte> bytes) {
    words.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  EXPECT_THAT(words, ::testing::ElementsAre("one", "two"));
  EXPECT_FALSE(comm_error_.is_set());
}

TEST_F(ControlLinksTest, WordsThatNobodyAsksForDoNotFillTheMemory) {
  for (int i = 0; i < 10'000 && !comm_error_.is_set(); ++i) {
    say(control::FrameKind::kWord, std::string(64, 'x'));
    links_.poll();
  }
  EXPECT_THAT(comm_error_.status().message(), ::testing::HasSubstr("rank 1"));
  EXPECT_THAT(comm_error_.status().message(), ::testing::HasSubstr("sent too many words"));
}

TEST_F(ControlLinksTest, TheErrorOfAPeerIsShownWithoutControlCharacters) {
  say(control::FrameKind::kError, "rank 3 died \x1b[31m");
  links_.poll();
  EXPECT_EQ(comm_error_.status().message(), "rank 3 died  [31m");
}

} // namespace
} // namespace whorl
