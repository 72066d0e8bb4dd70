#include "whorl/whorl.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

static_assert(whorl::datatype_of<float> == whorlFloat32);
static_assert(whorl::datatype_of<const double> == whorlFloat64);
static_assert(whorl::datatype_of<signed char> == whorlInt8);
static_assert(whorl::datatype_of<std::byte> == whorlUint8);
static_assert(whorl::datatype_of<int> == whorlInt32);
static_assert(whorl::datatype_of<unsigned> == whorlUint32);
static_assert(whorl::datatype_of<long> == whorlInt64);
static_assert(whorl::datatype_of<long long> == whorlInt64);
static_assert(whorl::datatype_of<unsigned long> == whorlUint64);
static_assert(!whorl::Element<long double>);
static_assert(!whorl::Element<void*>);
static_assert(!whorl::Element<std::string>);
static_assert(whorl::Writable<std::vector<float>&>);
static_assert(!whorl::Writable<const std::vector<float>&>);
static_assert(whorl::Readable<std::span<const int>>);
static_assert(!whorl::Readable<std::vector<bool>>);
static_assert(!std::is_copy_constructible_v<whorl::Communicator>);
static_assert(std::is_nothrow_move_constructible_v<whorl::Communicator>);
static_assert(!std::is_copy_constructible_v<whorl::Stream>);
static_assert(!std::is_copy_constructible_v<whorl::Event>);
static_assert(!std::is_copy_constructible_v<whorl::MemoryBuffer<int>>);

struct Half {
  std::uint16_t bits;
};

} // namespace

template <>
struct whorl::DatatypeOf<Half> {
  static constexpr whorlDataType_t value = whorlFloat16;
};

namespace {

static_assert(whorl::datatype_of<Half> == whorlFloat16);

/// Runs `body` on `nranks` threads, each with its communicator, and turns exceptions into failures.
void run_ranks(int nranks, const std::function<void(whorl::Communicator&)>& body) {
  const auto id = whorl::UniqueId::create();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        auto comm = whorl::Communicator::join(nranks, id, rank);
        body(comm);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Hpp, ReportsVersionOfTheLibrary) { EXPECT_EQ(whorl::version(), WHORL_VERSION_CODE); }

TEST(Hpp, UniqueIdSurvivesTheJourneyAsBytes) {
  const auto id = whorl::UniqueId::create();
  EXPECT_EQ(whorl::UniqueId::from_bytes(id.bytes()).bytes(), id.bytes());
}

static_assert(whorl::datatype_of<bool> == whorlBool);
static_assert(whorl::datatype_of<std::int16_t> == whorlInt16);
static_assert(whorl::datatype_of<std::uint16_t> == whorlUint16);

TEST(Hpp, BlocksOfDifferentSizes) {
  run_ranks(3, [](whorl::Communicator& comm) {
    const int rank = comm.rank();
    comm.set_timeout(20'000);
    const std::vector<std::size_t> counts{2, 0, 1}; // counts of every rank
    const auto own = counts[static_cast<std::size_t>(rank)];
    const std::vector<int> mine(own, rank);
    std::vector<int> all(3);
    comm.all_gather_v(mine, all, counts);
    EXPECT_THAT(all, ElementsAre(0, 0, 2));

    std::vector<int> at_root(rank == 1 ? 3 : 0), back(own);
    comm.gather_v(mine, at_root, counts, 1);
    comm.scatter_v(at_root, counts, back, 1);
    EXPECT_EQ(back, mine);

    std::vector<int> sum(own);
    comm.reduce_scatter_v(all, sum, counts, whorlSum);
    EXPECT_THAT(sum, Each(3 * rank));

    const std::vector<int> letters(3, rank); // counts[j] to rank j
    std::vector<int> inbox(3 * own);
    comm.all_to_all_v(letters, counts, inbox, std::vector<std::size_t>(3, own));
    for (std::size_t i = 0; i < inbox.size(); ++i) {
      EXPECT_EQ(inbox[i], static_cast<int>(i / own));
    }
    EXPECT_THROW(comm.all_gather_v(mine, all, std::vector<std::size_t>{1, 1}), whorl::Error);
    EXPECT_THROW(comm.all_gather_v(mine, all, std::vector<std::size_t>{1, 1, 2}), whorl::Error);

    if (rank == 0) {
      std::vector<int> got(1);
      int source = -1, total = 0;
      for (int i = 0; i < 2; ++i) {
        comm.recv_any(got, source);
        EXPECT_EQ(got[0], source);
        total += source;
      }
      EXPECT_EQ(total, 3);
    } else {
      comm.send(std::vector<int>{rank}, 0);
    }
  });
}

TEST(Hpp, CollectivesOnRanges) {
  run_ranks(3, [](whorl::Communicator& comm) {
    const int rank = comm.rank();
    ASSERT_EQ(comm.size(), 3);
    const auto me = static_cast<float>(rank);

    std::vector<float> sum{me, 10};
    comm.all_reduce(sum, whorlSum);
    EXPECT_THAT(sum, ElementsAre(3, 30));

    const std::vector<int> mine{rank, rank + 10};
    std::array<int, 2> least{};
    comm.all_reduce(mine, least, whorlMin);
    EXPECT_THAT(least, ElementsAre(0, 10));

    std::vector<int> at_root(rank == 1 ? 2 : 0);
    comm.reduce(mine, at_root, whorlMax, 1);
    if (rank == 1) {
      EXPECT_THAT(at_root, ElementsAre(2, 12));
    }

    std::vector<double> news(4, rank == 2 ? 7.0 : 0.0);
    comm.broadcast(news, 2);
    EXPECT_THAT(news, Each(7.0));

    std::vector<int> all(6);
    comm.all_gather(mine, all);
    EXPECT_THAT(all, ElementsAre(0, 10, 1, 11, 2, 12));

    const std::vector<std::int64_t> ones(6, 1);
    std::vector<std::int64_t> block(2);
    comm.reduce_scatter(ones, block, whorlSum);
    EXPECT_THAT(block, Each(3));

    std::vector<int> letters{100 * rank, 100 * rank + 1, 100 * rank + 2}, inbox(3);
    comm.all_to_all(letters, inbox);
    EXPECT_THAT(inbox, ElementsAre(rank, 100 + rank, 200 + rank));

    std::vector<int> gathered(rank == 0 ? 6 : 0);
    comm.gather(mine, gathered, 0);
    if (rank == 0) {
      EXPECT_EQ(gathered, all);
    }

    std::vector<int> part(2);
    comm.scatter(gathered, part, 0);
    EXPECT_EQ(part, mine);

    comm.barrier();
  });
}

TEST(Hpp, SendsAndReceivesInAGroup) {
  run_ranks(2, [](whorl::Communicator& comm) {
    const int peer = 1 - comm.rank();
    const std::vector<double> out(100, comm.rank());
    std::vector<double> in(100, -1);
    whorl::Group group;
    comm.send(out, peer);
    comm.recv(in, peer);
    group.end();
    EXPECT_THAT(in, Each(peer));
  });
}

/// A group that an exception leaves drops its calls: their buffers may be gone, and ranks that
/// would meet them may not come.
TEST(Hpp, AGroupThatAnExceptionLeavesIssuesNothing) {
  std::atomic<bool> left{false};
  run_ranks(2, [&](whorl::Communicator& comm) {
    const auto start = std::chrono::steady_clock::now();
    const auto leave = [&](bool nested) {
      try {
        const whorl::Group outer;
        std::vector<double> in(100, -1);
        if (nested) {
          const whorl::Group inner;
          comm.recv(in, 1);
          throw std::runtime_error("in the group");
        }
        comm.recv(in, 1);
        throw std::runtime_error("in the group");
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "in the group");
      }
    };
    if (comm.rank() == 0) {
      leave(false);
      leave(true);
      whorl::Group group;
      try {
        const whorl::Group inner;
        throw std::runtime_error("in the inner group");
      } catch (const std::runtime_error&) {
      }
      try {
        group.end();
        ADD_FAILURE() << "a part of a group was issued";
      } catch (const whorl::Error& error) {
        EXPECT_EQ(error.code(), whorlInvalidUsage);
        EXPECT_STREQ(error.what(),
                     "An exception has left a group within this one: none of the "
                     "calls was issued.");
      }
      whorl::Group next; // is not failed by what has left another
      next.end();
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)); // timeout: 30 s
      left = true;
      left.notify_one();
    }
    left.wait(false);
    std::vector<int> data{1};
    comm.all_reduce(data, whorlSum);
    EXPECT_THAT(data, ElementsAre(2));
  });
}

TEST(Hpp, StreamsBuffersAndOperators) {
  run_ranks(2, [](whorl::Communicator& comm) {
    whorl::Stream stream;
    whorl::MemoryBuffer<float> data(1000);
    ASSERT_EQ(data.size(), 1000u);
    EXPECT_THAT(data, Each(0.0f));
    std::fill(data.begin(), data.end(), 1.0f);
    const whorl::ScaledSum half(comm, 0.5f);
    comm.all_reduce(data, half, stream);
    comm.all_reduce(data, whorlSum, stream);
    stream.synchronize();
    EXPECT_TRUE(stream.done());
    EXPECT_THAT(data, Each(2.0f));

    std::vector<float> plain(100000, 3.0f);
    {
      const whorl::Registration registration(comm, plain);
      comm.all_reduce(plain, whorlAvg);
    }
    EXPECT_THAT(plain, Each(3.0f));
  });
}

TEST(Hpp, EventsAndCallbacks) {
  run_ranks(2, [](whorl::Communicator& comm) {
    whorl::Stream stream, other;
    whorl::Event event;
    EXPECT_TRUE(event.done());
    std::vector<int> data(10, 1), seen;
    std::vector<whorlResult_t> statuses;
    comm.all_reduce(data, whorlSum, stream);
    event.record(stream);
    other.wait(event);
    other.add_callback([&](whorlResult_t status) {
      seen = data;
      statuses.push_back(status);
    });
    event.record(other);
    const whorl::Event moved = std::move(event);
    while (!moved.wait_for(std::chrono::milliseconds(100))) continue;
    moved.wait();
    EXPECT_TRUE(moved.done());
    EXPECT_THAT(seen, Each(2));
    EXPECT_THAT(statuses, ElementsAre(whorlSuccess));
    whorlResult_t of_abort = whorlSuccess;
    other.add_callback([&](whorlResult_t) {
      try {
        comm.abort();
      } catch (const whorl::Error& error) {
        of_abort = error.code();
      }
    });
    other.synchronize();
    EXPECT_EQ(of_abort, whorlInvalidUsage); // refused in a callback: the communicator stays
    EXPECT_TRUE(comm);
    try {
      other.add_callback(nullptr); // throws when it is called
      other.synchronize();
      ADD_FAILURE() << "no error";
    } catch (const whorl::Error& error) {
      EXPECT_EQ(error.code(), whorlInternalError);
    }
    whorl::Event first;
    first = whorl::Event(); // frees the other one at once
    EXPECT_TRUE(first.done());
    const whorl::Stream to = std::move(stream);
    try {
      stream.add_callback([](whorlResult_t) { throw std::runtime_error("in a callback"); });
      ADD_FAILURE() << "no error";
    } catch (const whorl::Error& error) {
      EXPECT_EQ(error.code(), whorlInvalidArgument);
    }
  });
}

TEST(Hpp, SizesAreCheckedBeforeTheCall) {
  run_ranks(2, [](whorl::Communicator& comm) {
    std::vector<float> two(2), three(3);
    const auto refuses = [](auto&& call) {
      try {
        call();
      } catch (const whorl::Error& error) {
        EXPECT_EQ(error.code(), whorlInvalidArgument);
        EXPECT_STRNE(error.what(), "");
        return true;
      }
      return false;
    };
    EXPECT_TRUE(refuses([&] { comm.all_reduce(two, three, whorlSum); }));
    EXPECT_TRUE(refuses([&] { comm.all_gather(two, three); }));
    EXPECT_TRUE(refuses([&] { comm.reduce_scatter(three, two, whorlSum); }));
    EXPECT_TRUE(refuses([&] { comm.all_to_all(three, three); }));
    EXPECT_TRUE(refuses([&] { comm.all_reduce(two, two, static_cast<whorlRedOp_t>(77)); }));
    std::vector<float> sum(1, 1.0f); // no call was made: the communicator still works
    comm.all_reduce(sum, whorlSum);
    EXPECT_THAT(sum, ElementsAre(2));
  });
}

TEST(Hpp, ErrorsCarryCodeAndSentence) {
  try {
    (void)whorl::Communicator::join(2, whorl::UniqueId::create(), 5);
    FAIL() << "rank 5 of 2 was accepted";
  } catch (const whorl::Error& error) {
    EXPECT_EQ(error.code(), whorlInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("5"));
  }
}

TEST(Hpp, JoinAllMakesEveryRankOfThisProcess) {
  auto comms = whorl::Communicator::join_all(3);
  ASSERT_EQ(comms.size(), 3u);
  std::vector<std::vector<int>> data(3, std::vector<int>{1});
  whorl::Group group;
  for (std::size_t i = 0; i < 3; ++i) comms[i].all_reduce(data[i], whorlSum);
  group.end();
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(comms[i].rank(), static_cast<int>(i));
    EXPECT_THAT(data[i], ElementsAre(3));
  }
}

/// Expects that a creation is refused because a group is open.
void expect_refused(const std::function<whorl::Communicator()>& make) {
  try {
    const auto made = make();
    ADD_FAILURE() << "a communicator was made, or will be at the end of the group";
  } catch (const whorl::Error& error) {
    EXPECT_EQ(error.code(), whorlInvalidUsage);
    EXPECT_THAT(error.what(), HasSubstr("make communicators outside of a Group, or by join_all()"));
  }
}

/// The variables to which whorl would write the communicators are gone at the end of the group.
TEST(Hpp, CreationsInAGroupAreRefused) {
  run_ranks(2, [](whorl::Communicator& comm) {
    const auto id = whorl::UniqueId::create();
    std::vector<int> data{1};
    whorl::Group group;
    {
      whorl::Group inner;
      inner.end();
    }
    expect_refused([&] { return whorl::Communicator::join(1, id, 0); });
    expect_refused([&] { return whorl::Communicator::join(1, "127.0.0.1:1", 0); });
    expect_refused([] { return whorl::Communicator::from_env(); });
    expect_refused([&] { return comm.split(0, 0); });
    expect_refused([&] { return comm.split(WHORL_SPLIT_NOCOLOR, 0); });
    expect_refused([&] { return comm.shrink(); });
    EXPECT_EQ(whorl::Communicator::join_all(1).front().size(), 1);
    comm.all_reduce(data, whorlSum); // the group goes on
    group.end();
    EXPECT_THAT(data, ElementsAre(2));
    EXPECT_EQ(comm.split(0, 0).size(), 2);
  });
}

TEST(Hpp, CreationsInAGroupOfTheCApiAreRefused) {
  run_ranks(2, [](whorl::Communicator& comm) {
    const auto id = whorl::UniqueId::create();
    const std::vector<std::function<whorl::Communicator()>> creations{
        [&] { return whorl::Communicator::join(1, id, 0); }, [&] { return comm.split(0, 0); },
        [&] { return comm.shrink(); }};
    for (const auto& create : creations) {
      ASSERT_EQ(whorlGroupStart(), whorlSuccess);
      expect_refused(create);
      EXPECT_NE(whorlGroupEnd(), whorlSuccess) << "the creation has been collected";
    }
    ASSERT_EQ(whorlGroupStart(), whorlSuccess);
    EXPECT_FALSE(comm.split(WHORL_SPLIT_NOCOLOR, 0)); // gets no communicator: it may be collected
    EXPECT_EQ(whorlGroupEnd(), whorlSuccess);
    std::vector<int> data{1};
    comm.all_reduce(data, whorlSum);
    EXPECT_THAT(data, ElementsAre(2));
  });
}

TEST(Hpp, SplitGivesCommunicatorsByColor) {
  run_ranks(3, [](whorl::Communicator& comm) {
    const bool joins = comm.rank() != 1;
    const auto part = comm.split(joins ? 0 : WHORL_SPLIT_NOCOLOR, -comm.rank());
    EXPECT_EQ(static_cast<bool>(part), joins);
    if (!joins) return;
    EXPECT_EQ(part.size(), 2);
    EXPECT_EQ(part.rank(), comm.rank() == 2 ? 0 : 1); // ordered by key
  });
}

TEST(Hpp, ShrinkGoesOnWithoutTheExcluded) {
  run_ranks(3, [](whorl::Communicator& comm) {
    if (comm.rank() == 1) return;
    const std::vector<int> excluded{1};
    const auto rest = comm.shrink(excluded);
    EXPECT_EQ(rest.size(), 2);
    EXPECT_EQ(rest.rank(), comm.rank() / 2);
    std::vector<int> data{1};
    rest.all_reduce(data, whorlSum);
    EXPECT_THAT(data, ElementsAre(2));
  });
}

TEST(Hpp, MovingLeavesNothingBehind) {
  auto comms = whorl::Communicator::join_all(1);
  whorl::Communicator first = std::move(comms[0]);
  EXPECT_FALSE(comms[0]);
  whorl::Communicator second;
  second = std::move(first);
  EXPECT_TRUE(second);
  EXPECT_EQ(second.size(), 1);
  EXPECT_EQ(second.async_error(), whorlSuccess);
  second.finalize();

  whorl::MemoryBuffer<int> a(10);
  a[3] = 5;
  whorl::MemoryBuffer<int> b = std::move(a);
  EXPECT_EQ(a.size(), 0u);
  EXPECT_EQ(b[3], 5);
}

} // namespace
