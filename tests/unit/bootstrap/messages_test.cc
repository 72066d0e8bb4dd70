// Tests of what a root makes of the messages of its ranks, well-formed and not.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "bootstrap/root.h"
#include "bootstrap/root_client.h"
#include "net/mesh.h"
#include "tests/unit/bootstrap/support.h"

namespace whorl {
namespace {

using bootstrap::Contribution;
using bootstrap::ContributionKind;
using Bytes = std::vector<std::byte>;

/// A rank that knows the secret and says what a test tells it to say.
class Speaker {
 public:
  Speaker(const UniqueId& id, int rank) : rank_(rank) {
    MeshPlan plan;
    plan.rank = rank;
    plan.identity = &id.identity;
    plan.targets.push_back(
        {static_cast<int>(bootstrap::kRootRank), SocketRole::kBootstrap, 0, id.addresses});
    plan.deadline_ns = sys().now_ns() + 10'000'000'000;
    auto links = connect_mesh({}, plan);
    EXPECT_TRUE(links.ok()) << links.status().message();
    if (links.ok()) socket_ = std::move(links->front().socket);
  }
  Contribution header(ContributionKind kind) const {
    Contribution out;
    out.rank = static_cast<std::uint32_t>(rank_);
    out.nranks = 3;
    out.timeout_ms = 20'000;
    out.kind = kind;
    std::strcpy(out.who.data(), "host h, pid 1");
    return out;
  }
  void say(const Contribution& header, const std::string& text = "", std::size_t piece = SIZE_MAX) {
    ByteWriter out;
    out.put(header);
    out.put_bytes(std::as_bytes(std::span(text)));
    std::span<const std::byte> rest = out.bytes();
    while (!rest.empty()) {
      const auto sent = socket_.send(rest.first(std::min(piece, rest.size())));
      if (sent <= 0) return; // the root has hung up
      rest = rest.subspan(static_cast<std::size_t>(sent));
      if (piece < SIZE_MAX) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  void contribute() { say(header(ContributionKind::kData)); }
  void fail_with(const std::string& text, std::size_t piece = SIZE_MAX) {
    Contribution failed = header(ContributionKind::kFailed);
    failed.code = static_cast<std::uint32_t>(Code::kSystemError);
    failed.bytes = static_cast<std::uint32_t>(text.size());
    say(failed, text, piece);
  }

 private:
  int rank_;
  StreamSocket socket_;
};

/// Returns the error of rank 0 of three, of which rank 2 never comes, while another rank speaks.
Status error_while(int rank, const std::function<void(Speaker&)>& speak) {
  const UniqueId id = loopback_root();
  Status error;
  std::thread waiting([&] { error = meet_by_id(id, attendant(0, 3, 20)).status(); });
  Speaker speaker(id, rank);
  const auto start = Clock::now();
  speak(speaker);
  waiting.join();
  EXPECT_LT(seconds_since(start), 10);
  return error;
}

TEST(RootMessages, AReasonEndsTheRendezvous) {
  for (const bool contributes : {false, true}) {
    for (const std::size_t piece : {SIZE_MAX, std::size_t{1}, std::size_t{7}}) {
      const Status error = error_while(1, [&](Speaker& speaker) {
        if (contributes) speaker.contribute();
        speaker.fail_with("no memory \x1b[31m left", piece);
      });
      EXPECT_EQ(error.code(), Code::kSystemError);
      EXPECT_EQ(error.message(), "rank 1 (host h, pid 1) could not join: no memory  [31m left");
    }
  }
}

TEST(RootMessages, ARankThatDoesNotExistMayFail) {
  const Status error = error_while(7, [](Speaker& speaker) { speaker.fail_with(""); });
  EXPECT_EQ(error.message(), "rank 7 (host h, pid 1) could not join: ");
}

TEST(RootMessages, TheLongestReasonArrives) {
  const std::string text(bootstrap::kMaxTextBytes, 'x');
  const Status error = error_while(1, [&](Speaker& speaker) { speaker.fail_with(text); });
  EXPECT_TRUE(contains(error.message(), "could not join: xxxx"));
}

TEST(RootMessages, NonsenseOfAMemberIsNamed) {
  const auto expect_named = [](const std::function<void(Speaker&)>& speak) {
    const Status error = error_while(1, [&](Speaker& speaker) {
      speaker.contribute();
      speak(speaker);
    });
    EXPECT_EQ(error.message(), "rank 1 (host h, pid 1) sent a malformed message to the rendezvous");
  };
  expect_named([](Speaker& speaker) { speaker.contribute(); }); // before the answer
  expect_named([](Speaker& speaker) { speaker.say(speaker.header(ContributionKind::kLeaving)); });
  expect_named(
      [](Speaker& speaker) { speaker.say(speaker.header(static_cast<ContributionKind>(77))); });
  for (const std::uint32_t code : {0U, kLastErrorCode + 1, 4'000'000'000U}) {
    expect_named([code](Speaker& speaker) {
      Contribution failed = speaker.header(ContributionKind::kFailed);
      failed.code = code;
      speaker.say(failed);
    });
  }
  expect_named([](Speaker& speaker) {
    Contribution failed = speaker.header(ContributionKind::kFailed);
    failed.code = 2;
    failed.bytes = bootstrap::kMaxTextBytes + 1;
    speaker.say(failed);
  });
  expect_named([](Speaker& speaker) {
    Contribution other = speaker.header(ContributionKind::kFailed);
    other.rank = 0;
    other.code = 2;
    speaker.say(other);
  });
}

/// A rank that has not joined is no member, and nonsense of it concerns nobody.
TEST(RootMessages, NonsenseOfAStrangerIsDropped) {
  const UniqueId id = loopback_root();
  Speaker stranger(id, 1);
  stranger.say(stranger.header(ContributionKind::kLeaving));
  meet(3, [&](int rank) { return meet_by_id(id, attendant(rank, 3)); });
}

} // namespace
} // namespace whorl
