// Tests of every collective × algorithm × datatype × operator × size × in place, with ranks as
// threads and results compared bit for bit.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "tests/support/oracle.h"
#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

using Kind = CollectiveCase::Kind;

constexpr auto& kKinds = CollectiveCase::kKinds;

bool reduces(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
}
bool has_root(Kind kind) {
  return kind == Kind::kReduce || kind == Kind::kBroadcast || kind == Kind::kGather ||
         kind == Kind::kScatter;
}

std::string run_case(const CollectiveCase& c, int rank, int nranks, whorlComm_t comm,
                     void* stream = nullptr) {
  Buffers buffers(c, rank, nranks);
  if (const std::string f = failure(buffers.run(comm, stream), comm); !f.empty()) {
    return c.text() + ": " + f;
  }
  if (stream != nullptr) {
    const auto synced = whorlStreamSynchronize(static_cast<whorlStream_t>(stream));
    if (synced != whorlSuccess) return c.text() + ": " + failure(synced);
  }
  return buffers.check();
}

/// Runs all sizes and forms of all collectives in one world.
std::string run_shapes(int rank, int nranks, whorlComm_t comm) {
  for (CollectiveCase c : every_case({0, 1, 2, 31, 1000, 4099})) {
    const int roots = has_root(c.kind) ? nranks : 1;
    for (c.root = 0; c.root < roots; ++c.root) {
      if (c.root > 1 && c.root < nranks - 1 && c.count != 31) continue;
      if (std::string f = run_case(c, rank, nranks, comm); !f.empty()) return f;
    }
  }
  return failure(whorlBarrier(comm, nullptr), comm);
}

class Ranks : public ::testing::TestWithParam<int> {};

TEST_P(Ranks, EveryShapeOfEveryCollective) {
  const ScopedEnv env({{"WHORL_SLOT_BYTES", "1024"}, {"WHORL_VERIFY", "1"}});
  ThreadWorld world(GetParam());
  world.each([&](int rank, whorlComm_t comm) { return run_shapes(rank, world.size(), comm); });
}

INSTANTIATE_TEST_SUITE_P(All, Ranks, ::testing::Values(1, 2, 3, 4, 5, 7, 8));

class Algorithms : public ::testing::TestWithParam<std::string> {};

TEST_P(Algorithms, GiveTheSameResults) {
  for (const int n : {2, 3, 4, 8}) {
    const ScopedEnv env({{"WHORL_SLOT_BYTES", "1024"},
                         {"WHORL_ALGO", GetParam()},
                         {"WHORL_CHANNELS", "2"},
                         {"WHORL_DIMS", n == 8   ? "4,2"
                                        : n == 4 ? "2,2"
                                                 : ""}});
    ThreadWorld world(n);
    world.each([&](int rank, whorlComm_t comm) { return run_shapes(rank, n, comm); });
  }
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (std::find(names.begin(), names.end(), algorithm.name) == names.end()) {
      names.emplace_back(algorithm.name);
    }
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Algorithms, ::testing::ValuesIn(algorithm_names()),
                         [](const auto& instance) { return instance.param; });

/// Returns the operators of the datatype.
std::vector<whorlRedOp_t> operators(Kind kind, whorlDataType_t type) {
  if (!reduces(kind)) return {whorlSum};
  std::vector<whorlRedOp_t> all{whorlSum, whorlProd, whorlMax, whorlMin};
  if (type != whorlBool) all.push_back(whorlAvg);
  if (type < whorlFloat16 || type > whorlFloat8e5m2) {
    all.insert(all.end(), {whorlBand, whorlBor, whorlBxor});
  }
  return all;
}

void run_every_datatype_and_operator(std::initializer_list<int> ranks) {
  for (const int n : ranks) {
    const ScopedEnv env({{"WHORL_SLOT_BYTES", "1024"}});
    ThreadWorld world(n);
    world.each([&](int rank, whorlComm_t comm) -> std::string {
      for (const Kind kind : kKinds) {
        for (int type = 0; type < whorlNumTypes; ++type) {
          for (const whorlRedOp_t op : operators(kind, static_cast<whorlDataType_t>(type))) {
            for (const std::size_t count : {1U, 77U, 2051U}) {
              const CollectiveCase c{.kind = kind,
                                     .count = count,
                                     .type = static_cast<whorlDataType_t>(type),
                                     .op = op,
                                     .root = n - 1};
              if (std::string f = run_case(c, rank, n, comm); !f.empty()) return f;
            }
          }
        }
      }
      return {};
    });
  }
}

TEST(Collectives, EveryDatatypeAndOperator) { run_every_datatype_and_operator({1, 3}); }
TEST(CollectivesFull, EveryDatatypeAndOperator) { run_every_datatype_and_operator({2, 5, 8}); }

TEST(Collectives, LargeVectorsWithDefaultSlots) {
  ThreadWorld world(3);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    for (CollectiveCase c : every_case({300'001})) {
      c.root = 1;
      if (std::string f = run_case(c, rank, 3, comm); !f.empty()) return f;
    }
    return {};
  });
}

TEST(Collectives, ManyMoreRanksThanCores) {
  for (const int n : {16, 32}) {
    ThreadWorld world(n);
    world.each([&](int rank, whorlComm_t comm) -> std::string {
      for (const Kind kind : kKinds) {
        for (const std::size_t count : {1U, 1000U}) {
          const CollectiveCase c{.kind = kind, .count = count, .root = n / 2};
          if (std::string f = run_case(c, rank, n, comm); !f.empty()) return f;
        }
      }
      return failure(whorlBarrier(comm, nullptr), comm);
    });
  }
}

TEST(Collectives, OnStreams) {
  ThreadWorld world(4);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    whorlStream_t stream = nullptr;
    if (std::string f = failure(whorlStreamCreate(&stream)); !f.empty()) return f;
    std::vector<CollectiveCase> cases;
    std::vector<Buffers> buffers;
    for (std::size_t i = 0; i < 40; ++i) {
      cases.push_back({.kind = kKinds[i % 8], .count = i * 37, .root = static_cast<int>(i % 4)});
      buffers.emplace_back(cases.back(), rank, 4);
    }
    for (Buffers& b : buffers) {
      if (std::string f = failure(b.run(comm, stream), comm); !f.empty()) return f;
    }
    // A blocking call waits for all operations queued before it.
    if (std::string f = failure(whorlBarrier(comm, nullptr), comm); !f.empty()) return f;
    for (const Buffers& b : buffers) {
      if (std::string f = b.check(); !f.empty()) return f;
    }
    if (whorlStreamQuery(stream) != whorlSuccess &&
        whorlStreamSynchronize(stream) != whorlSuccess) {
      return "stream failed";
    }
    return failure(whorlStreamDestroy(stream));
  });
}

TEST(Collectives, OneThreadDrivesAllRanksInAGroup) {
  ThreadWorld world(4);
  for (const Kind kind : kKinds) {
    const CollectiveCase c{.kind = kind, .count = 5000, .root = 2};
    std::vector<Buffers> buffers;
    for (int rank = 0; rank < 4; ++rank) buffers.emplace_back(c, rank, 4);
    ASSERT_EQ(whorlGroupStart(), whorlSuccess);
    for (int rank = 0; rank < 4; ++rank) {
      ASSERT_EQ(buffers[static_cast<std::size_t>(rank)].run(world.comm(rank)), whorlSuccess);
    }
    ASSERT_EQ(failure(whorlGroupEnd()), "");
    for (const Buffers& b : buffers) EXPECT_EQ(b.check(), "");
  }
}

TEST(Collectives, OneStreamForSeveralRanksOfAGroup) {
  ThreadWorld world(3);
  whorlStream_t stream = nullptr;
  ASSERT_EQ(whorlStreamCreate(&stream), whorlSuccess);
  const CollectiveCase c{.kind = Kind::kAllReduce, .count = 5000};
  std::vector<Buffers> buffers;
  for (int rank = 0; rank < 3; ++rank) buffers.emplace_back(c, rank, 3);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(whorlGroupStart(), whorlSuccess);
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(buffers[static_cast<std::size_t>(rank)].run(world.comm(rank), stream),
                whorlSuccess);
    }
    ASSERT_EQ(failure(whorlGroupEnd()), "");
  }
  EXPECT_EQ(failure(whorlStreamSynchronize(stream)), "");
  for (const Buffers& b : buffers) EXPECT_EQ(b.check(), "");
  EXPECT_EQ(whorlStreamDestroy(stream), whorlSuccess);
}

/// Checks averages of the largest numbers, and of the smallest that scaling for eight ranks leaves
/// unchanged, at sizes from one algorithm of the selection to the next: all ranks have the same
/// number, which is the average.
TEST(Collectives, AveragesStayInTheRangeOfTheirType) {
  constexpr int kRanks = 8;
  struct Ends {
    whorlDataType_t type;
    std::uint64_t largest, small;
  };
  constexpr std::array kEnds{Ends{whorlFloat16, 0x7bff, 0x0400},
                             Ends{whorlBfloat16, 0x7f7f, 0x0080},
                             Ends{whorlFloat8e4m3, 0x7e, 0x08},
                             Ends{whorlFloat8e5m2, 0x7b, 0x08},
                             Ends{whorlFloat32, 0x7f7fffff, 0x00800000},
                             Ends{whorlFloat64, 0x7fefffffffffffff, 0x0010000000000000}};
  ThreadWorld world(kRanks);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    for (const std::size_t bytes : {64U << 10, 512U << 10, 2U << 20}) {
      for (const Ends& ends : kEnds) {
        const std::size_t element = size_of(static_cast<DataType>(ends.type));
        const std::size_t count = bytes / element, part = count / kRanks;
        std::vector<std::byte> in(bytes), out(bytes);
        for (std::size_t i = 0; i < count; ++i) {
          std::memcpy(&in[i * element], i % 2 != 0 ? &ends.small : &ends.largest, element);
        }
        const std::vector<std::size_t> counts(kRanks, part);
        std::byte* const own = out.data() + static_cast<std::size_t>(rank) * bytes / kRanks;
        const auto check = [&](const char* what, whorlResult_t result, const std::byte* data,
                               std::size_t size) {
          std::string failed = failure(result, comm);
          // With three or four bits, intermediate sums are rounded: one code less is accepted.
          const auto good = [&](std::byte got, std::byte wanted) {
            return got == wanted ||
                   (element == 1 && std::to_integer<int>(got) + 1 == std::to_integer<int>(wanted));
          };
          if (failed.empty() && !std::equal(data, data + size, in.data(), good)) {
            failed = "another average than the inputs";
          }
          if (!failed.empty()) {
            failed += fmt::format(" ({} of {} bytes of type {})", what, bytes, int{ends.type});
          }
          return failed;
        };
        std::string failed =
            check("allreduce",
                  whorlAllReduce(in.data(), out.data(), count, ends.type, whorlAvg, comm, nullptr),
                  out.data(), bytes);
        if (!failed.empty()) return failed;
        out = in;
        failed =
            check("allreduce in place",
                  whorlAllReduce(out.data(), out.data(), count, ends.type, whorlAvg, comm, nullptr),
                  out.data(), bytes);
        if (!failed.empty()) return failed;
        failed =
            check("reduce-scatter in place",
                  whorlReduceScatter(out.data(), own, part, ends.type, whorlAvg, comm, nullptr),
                  own, bytes / kRanks);
        if (!failed.empty()) return failed;
        failed = check(
            "reduce-scatter of given sizes",
            whorlReduceScatterv(in.data(), own, counts.data(), ends.type, whorlAvg, comm, nullptr),
            own, bytes / kRanks);
        if (!failed.empty()) return failed;
        failed =
            check("reduce",
                  whorlReduce(in.data(), out.data(), count, ends.type, whorlAvg, 3, comm, nullptr),
                  rank == 3 ? out.data() : in.data(), bytes);
        if (!failed.empty()) return failed;
      }
    }
    return {};
  });
}

TEST(Collectives, PremultipliedSum) {
  ThreadWorld world(3);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    float factor = static_cast<float>(rank + 1);
    whorlRedOp_t op;
    if (std::string f = failure(
            whorlRedOpCreatePreMulSum(&op, &factor, whorlFloat32, whorlScalarHostImmediate, comm),
            comm);
        !f.empty()) {
      return f;
    }
    factor = 0; // was read immediately
    std::vector<float> in(100, 2.0F), out(100);
    if (std::string f = failure(
            whorlAllReduce(in.data(), out.data(), 100, whorlFloat32, op, comm, nullptr), comm);
        !f.empty()) {
      return f;
    }
    if (in[0] != 2.0F) return "the input was changed";
    if (out[0] != 12.0F || out[99] != 12.0F) return "got " + std::to_string(out[0]);
    if (whorlAllReduce(in.data(), out.data(), 100, whorlFloat64, op, comm, nullptr) !=
        whorlInvalidArgument) {
      return "a wrong datatype was accepted";
    }
    if (std::string f = failure(whorlRedOpDestroy(op, comm), comm); !f.empty()) return f;
    if (whorlAllReduce(in.data(), out.data(), 100, whorlFloat32, op, comm, nullptr) !=
        whorlInvalidArgument) {
      return "a destroyed operator was accepted";
    }
    return {};
  });
}

} // namespace
} // namespace whorl::test
