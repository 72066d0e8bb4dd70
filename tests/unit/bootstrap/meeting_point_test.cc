#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "bootstrap/meeting_point.h"
#include "tests/unit/bootstrap/support.h"

namespace whorl {
namespace {

UniqueId derived(const UniqueId& point, const std::string& name) {
  const Result<UniqueId> id = derive_id(point, name);
  EXPECT_TRUE(id.ok()) << id.status().message();
  return *id;
}

TEST(MeetingPoint, ServesAnyNumberOfMeetingsAtATime) {
  const Result<UniqueId> point = make_meeting_point(RootScope::kAnywhere);
  const Result<UniqueId> other = make_meeting_point(RootScope::kAnywhere);
  ASSERT_TRUE(point.ok() && other.ok());
  in_threads(12, [&](int i) {
    const UniqueId id = derived(i % 2 == 0 ? *point : *other, std::to_string(i / 2));
    meet(1 + i % 4, [&](int rank) { return meet_by_id(id, attendant(rank, 1 + i % 4)); });
  });
}

TEST(MeetingPoint, OneMeetingThatFailsDisturbsNoOther) {
  const Result<UniqueId> point = make_meeting_point(RootScope::kThisHost);
  ASSERT_TRUE(point.ok());
  in_threads(2, [&](int i) {
    if (i == 1) {
      meet(3, [&](int rank) { return meet_by_id(derived(*point, "whole"), attendant(rank, 3)); });
      return;
    }
    const UniqueId id = derived(*point, "rank 1 is absent");
    const Result<Rendezvous> first = meet_by_id(id, attendant(0, 2, 0.5));
    ASSERT_FALSE(first.ok());
    EXPECT_TRUE(contains(first.status().message(), "rank 1 of 2 did not arrive"));
    EXPECT_FALSE(meet_by_id(id, attendant(1, 2, 60)).ok()) << "hears of it at once";
  });
}

TEST(MeetingPoint, EveryNameAndPointHasASecretOfItsOwn) {
  const Result<UniqueId> point = make_meeting_point(RootScope::kThisHost);
  const Result<UniqueId> other = make_meeting_point(RootScope::kThisHost);
  ASSERT_TRUE(point.ok() && other.ok());
  const UniqueId a = derived(*point, "a"), b = derived(*point, "b"), c = derived(*other, "a");
  EXPECT_EQ(a.identity.secret, derived(*point, "a").identity.secret);
  for (const UniqueId* id : {&b, &c, &*point}) {
    EXPECT_NE(a.identity.job, id->identity.job);
    EXPECT_NE(a.identity.secret, id->identity.secret);
    UniqueId mixed = a;
    mixed.identity.secret = id->identity.secret;
    const Result<Rendezvous> rendezvous = meet_by_id(mixed, attendant(0, 1));
    ASSERT_FALSE(rendezvous.ok());
    EXPECT_TRUE(contains(rendezvous.status().message(), "wrong secret"))
        << rendezvous.status().message();
  }
  EXPECT_FALSE(meet_by_id(*point, attendant(0, 1)).ok()) << "a point is no id";
}

/// Checks what becomes of a point whose process has ended, and may have left a child behind.
void expect_ended_process_is_not_waited_for(bool leaves_child) {
  int pipe[2], stay[2];
  ASSERT_EQ(0, ::pipe(pipe));
  ASSERT_EQ(0, ::pipe(stay));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Result<UniqueId> point = make_meeting_point(RootScope::kThisHost);
    const auto bytes = point->encode();
    const bool written = ::write(pipe[1], bytes->data(), bytes->size()) > 0;
    ::close(stay[1]);
    if (leaves_child && ::fork() == 0) { // until this test ends
      std::byte none{};
      ::_exit(static_cast<int>(::read(stay[0], &none, 1)));
    }
    ::_exit(point.ok() && bytes.ok() && written ? 0 : 1);
  }
  std::array<std::byte, UniqueId::kBytes> bytes{};
  ASSERT_EQ(static_cast<ssize_t>(bytes.size()), ::read(pipe[0], bytes.data(), bytes.size()));
  int status = 0;
  ASSERT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  const Result<UniqueId> point = UniqueId::decode(bytes);
  ASSERT_TRUE(point.ok());
  const auto start = Clock::now();
  const auto met = meet_by_id(derived(*point, "late"), attendant(1, 2, 60));
  ASSERT_FALSE(met.ok());
  EXPECT_EQ(Code::kRemoteError, met.status().code());
  EXPECT_LT(seconds_since(start), 30);
  for (const int fd : {pipe[0], pipe[1], stay[0], stay[1]}) ::close(fd);
}
TEST(MeetingPoint, AnEndedProcessIsNotWaitedFor) { expect_ended_process_is_not_waited_for(false); }
TEST(MeetingPoint, AnEndedProcessWithAChildIsNotWaitedFor) {
  expect_ended_process_is_not_waited_for(true);
}

} // namespace
} // namespace whorl
