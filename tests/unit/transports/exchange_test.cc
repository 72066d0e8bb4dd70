// Tests the exchange of addresses over control sockets.
#include "transports/control/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <thread>

namespace whorl {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> bytes_of(std::size_t size, int seed) {
  return std::vector<std::byte>(size, static_cast<std::byte>(seed));
}

/// Rank 0 and its control sockets to ranks 1 and 2, whose ends a test holds.
class ExchangeBlobs : public ::testing::Test {
 protected:
  ExchangeBlobs() {
    membership_.nranks = 3;
    membership_.peers.resize(3);
    membership_.comm_error = &comm_error_;
    membership_.timeout_ns = 20'000'000'000;
    for (int rank = 1; rank <= 2; ++rank) {
      membership_.peers[static_cast<std::size_t>(rank)].process_id =
          100 + static_cast<std::uint32_t>(rank);
      std::strcpy(membership_.peers[static_cast<std::size_t>(rank)].host_name.data(), "here");
      std::array<int, 2> fds{};
      EXPECT_EQ(sys().socket_pair(SOCK_STREAM, fds), 0);
      links_.push_back({.rank = rank,
                        .role = SocketRole::kControl,
                        .socket = StreamSocket(Fd(fds[0])),
                        .via = ""});
      peers_.emplace_back(fds[1]);
    }
    // Sockets for data are none of its business.
    links_.push_back({.rank = 1, .role = SocketRole::kData, .socket = StreamSocket(), .via = ""});
  }
  void say(int rank, const std::vector<std::byte>& bytes) {
    const Fd& socket = peers_[static_cast<std::size_t>(rank - 1)];
    ASSERT_EQ(sys().send(socket.get(), bytes), static_cast<ssize_t>(bytes.size()));
  }
  static std::vector<std::byte> framed(const std::vector<std::byte>& blob, std::uint32_t size) {
    std::vector<std::byte> out(sizeof size);
    std::memcpy(out.data(), &size, sizeof size);
    out.insert(out.end(), blob.begin(), blob.end());
    return out;
  }
  static std::vector<std::byte> framed(const std::vector<std::byte>& blob) {
    return framed(blob, static_cast<std::uint32_t>(blob.size()));
  }
  auto exchange(const std::vector<std::vector<std::byte>>& mine) {
    return exchange_blobs(membership_, links_, mine);
  }

  CommError comm_error_;
  Membership membership_;
  std::vector<MeshLink> links_;
  std::vector<Fd> peers_;
};

TEST_F(ExchangeBlobs, HasEverySizeAndLeavesWhatFollowsInTheSocket) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{300}, kMaxBlobBytes}) {
    say(1, framed(bytes_of(size, 7)));
    say(1, bytes_of(3, 9));
    say(2, framed(bytes_of(5, 8)));
    const auto got = exchange({bytes_of(2, 1), bytes_of(size, 2)});
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_EQ((*got)[0], bytes_of(size, 7));
    EXPECT_EQ((*got)[1], bytes_of(5, 8));
    std::vector<std::byte> rest(10);
    EXPECT_EQ(sys().recv(links_[0].socket.get(), rest), 3);
    std::vector<std::byte> sent(sizeof(std::uint32_t) + size);
    EXPECT_EQ(sys().recv(peers_[1].get(), sent), static_cast<ssize_t>(sent.size()));
    EXPECT_EQ(sent, framed(bytes_of(size, 2)));
    sent.resize(sizeof(std::uint32_t) + 2);
    EXPECT_EQ(sys().recv(peers_[0].get(), sent), static_cast<ssize_t>(sent.size()));
  }
}

TEST_F(ExchangeBlobs, WaitsForALatePeer) {
  say(1, framed(bytes_of(4, 7)));
  std::thread late([&] { say(2, framed(bytes_of(6, 8))); });
  const auto got = exchange({{}, {}});
  late.join();
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ((*got)[1], bytes_of(6, 8));
}

TEST_F(ExchangeBlobs, NamesAPeerThatEndsItsConnection) {
  say(1, framed(bytes_of(4, 7)));
  say(2, framed({}, 100));
  peers_[1].reset();
  const auto got = exchange({{}, {}});
  ASSERT_FALSE(got.ok());
  EXPECT_THAT(got.status().message(),
              HasSubstr("rank 2 (host here, pid 102) ended its connection"));
}

TEST_F(ExchangeBlobs, RefusesASizeThatNobodySends) {
  say(1, framed({}, kMaxBlobBytes + 1));
  EXPECT_FALSE(exchange({{}, {}}).ok());
  EXPECT_FALSE(exchange({bytes_of(kMaxBlobBytes + 1, 0), {}}).ok());
}

TEST_F(ExchangeBlobs, NamesASilentPeer) {
  membership_.timeout_ns = 20'000'000;
  say(1, framed(bytes_of(4, 7)));
  const auto got = exchange({{}, {}});
  ASSERT_FALSE(got.ok());
  EXPECT_THAT(got.status().message(), HasSubstr("rank 2 (host here, pid 102) has not sent"));
}

TEST_F(ExchangeBlobs, EndsWithTheCommunicatorsError) {
  comm_error_.set(Status::error(Code::kInvalidUsage, "enough"));
  const auto got = exchange({{}, {}});
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.status().message(), "enough");
}

} // namespace
} // namespace whorl
