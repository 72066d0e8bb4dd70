#include "transports/tcp/tuning.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/system.h"
#include "tests/support/scoped_env.h"

namespace whorl {
namespace {

using test::ScopedEnv;

constexpr int kListener = 1001;
constexpr int kSocket = 1002;

/// Sockets with a congestion control and a round trip; no call reaches the kernel.
class FakeSockets final : public System {
 public:
  std::string system_control = "cubic";
  std::vector<std::string> allowed{"cubic", "reno", "bbr"};
  std::uint32_t round_trip_us = 10;
  std::map<int, std::string> control; ///< control of each socket
  std::map<int, int> buffers;         ///< key: option
  int largest_buffer = 212'992;       ///< net.core.rmem_max and wmem_max

  int getsockopt(int fd, int level, int option, void* value, socklen_t* size) noexcept override {
    if (level == SOL_SOCKET && buffers.count(option) != 0) {
      const int doubled = 2 * std::min(buffers[option], largest_buffer);
      std::memcpy(value, &doubled, sizeof doubled);
      return 0;
    }
    if (level != IPPROTO_TCP) return -ENOPROTOOPT;
    if (option == TCP_CONGESTION) {
      const auto set = control.find(fd);
      const std::string& name = set != control.end() ? set->second : system_control;
      std::memset(value, 0, *size);
      std::memcpy(value, name.data(), std::min<std::size_t>(name.size(), *size));
      return 0;
    }
    if (option != TCP_INFO) return -ENOPROTOOPT;
    tcp_info info{};
    info.tcpi_rtt = round_trip_us;
    *size = std::min<socklen_t>(*size, sizeof info);
    std::memcpy(value, &info, *size);
    return 0;
  }
  int setsockopt(int fd, int, int, std::string_view text) noexcept override {
    if (std::find(allowed.begin(), allowed.end(), text) == allowed.end()) return -ENOENT;
    control[fd] = text;
    return 0;
  }
  int setsockopt(int, int level, int option, int value) noexcept override {
    if (level == SOL_SOCKET && option != SO_KEEPALIVE) buffers[option] = value;
    return 0;
  }
};

class TcpTuningTest : public testing::Test {
 protected:
  TcpTuning tuning() {
    auto made = TcpTuning::from_environment();
    EXPECT_TRUE(made.ok()) << made.status().message();
    return *std::move(made);
  }
  FakeSockets sockets;
  ScopedSystem scope{&sockets};
};

TEST_F(TcpTuningTest, TheSystemsChoiceStays) {
  for (const char* const name : {"cubic", "reno", "dctcp", ""}) {
    sockets.system_control = name;
    TcpTuning tuned = tuning();
    EXPECT_TRUE(tuned.prepare(kListener).ok());
    EXPECT_EQ("", tuned.congestion());
    EXPECT_TRUE(tuned.finish(kSocket).ok());
    EXPECT_TRUE(sockets.control.empty() && sockets.buffers.empty());
  }
}

TEST_F(TcpTuningTest, BbrIsLeftBeforeConnectionsAreMadeAndComesBackOnLongPaths) {
  sockets.system_control = "bbr";
  TcpTuning tuned = tuning();
  EXPECT_TRUE(tuned.prepare(kListener).ok());
  EXPECT_EQ("cubic", tuned.congestion());
  EXPECT_EQ("cubic", sockets.control[kListener]);
  EXPECT_TRUE(tuned.finish(kSocket).ok());
  EXPECT_EQ(0U, sockets.control.count(kSocket)) << "a short path keeps what it began with";
  sockets.round_trip_us = 20'000;
  EXPECT_TRUE(tuned.finish(kSocket).ok());
  EXPECT_EQ("bbr", sockets.control[kSocket]);
}

TEST_F(TcpTuningTest, BbrStaysWhereNothingElseIsAllowed) {
  sockets.system_control = "bbr";
  sockets.allowed = {"bbr"};
  TcpTuning tuned = tuning();
  EXPECT_TRUE(tuned.prepare(kListener).ok());
  EXPECT_EQ("", tuned.congestion());
}

TEST_F(TcpTuningTest, AChoiceOfTheUserHoldsOnAllPaths) {
  const ScopedEnv env{{"WHORL_TCP_CONGESTION", "bbr"}};
  TcpTuning tuned = tuning();
  EXPECT_TRUE(tuned.prepare(kListener).ok());
  EXPECT_EQ("bbr", tuned.congestion());
  EXPECT_TRUE(tuned.finish(kSocket).ok());
  EXPECT_EQ("bbr", sockets.control[kListener]);
  EXPECT_EQ(0U, sockets.control.count(kSocket));
}

TEST_F(TcpTuningTest, AnUnknownChoiceIsAnErrorThatNamesTheVariable) {
  const ScopedEnv env{{"WHORL_TCP_CONGESTION", "warp"}};
  const Status status = tuning().prepare(kListener);
  EXPECT_EQ(Code::kInvalidUsage, status.code());
  EXPECT_NE(std::string::npos, status.message().find("WHORL_TCP_CONGESTION=\"warp\""));
  EXPECT_NE(std::string::npos, status.message().find("tcp_available_congestion_control"));
}

TEST_F(TcpTuningTest, BuffersAreSetWhereAskedForWithinBounds) {
  const ScopedEnv env{{"WHORL_TCP_BUFFER_BYTES", "64K"}};
  EXPECT_TRUE(tuning().finish(kSocket).ok());
  EXPECT_EQ(65536, sockets.buffers[SO_SNDBUF]);
  EXPECT_EQ(65536, sockets.buffers[SO_RCVBUF]);
  for (const char* const bad : {"1", "4095", "-1", "1073741825", "2G", "many", "64Q"}) {
    const ScopedEnv refuses{{"WHORL_TCP_BUFFER_BYTES", bad}};
    const auto refused = TcpTuning::from_environment();
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_NE(std::string::npos, refused.status().message().find("WHORL_TCP_BUFFER_BYTES")) << bad;
  }
}

TEST_F(TcpTuningTest, WarnsOnceOfEachKindIfTheSystemCutsTheBuffers) {
  const ScopedEnv fits{{"WHORL_TCP_BUFFER_BYTES", "212992"}};
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(tuning().finish(kSocket).ok());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  const ScopedEnv cut{{"WHORL_TCP_BUFFER_BYTES", "212993"}};
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(tuning().finish(kSocket).ok());
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("WHORL_TCP_BUFFER_BYTES=212993 is cut to 212992 by net.core.wmem_max"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("net.core.rmem_max"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
}

} // namespace
} // namespace whorl
