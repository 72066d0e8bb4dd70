// Proofs that every algorithm is right in any order of ranks, and that an order renames ranks and
// changes nothing else.
#include <algorithm>
#include <numeric>
#include <random>

#include "support.h"

namespace whorl {
namespace {

using Order = std::vector<int>;

Order identity(int n) {
  Order order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

/// Returns the order of `hosts` hosts to which ranks were dealt in turn.
Order interleaved(int n, int hosts) {
  Order order = identity(n);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return a % hosts < b % hosts; });
  return order;
}

/// Returns some orders of n ranks, each once, without that of the ranks.
std::vector<Order> orders_of(int n) {
  constexpr unsigned kSeed = 20240607;
  std::mt19937 random(kSeed + static_cast<unsigned>(n));
  Order reversed = identity(n), shuffled = identity(n);
  std::reverse(reversed.begin(), reversed.end());
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  std::vector<Order> orders{reversed, interleaved(n, 2), interleaved(n, 3), shuffled};
  std::sort(orders.begin(), orders.end());
  orders.erase(std::unique(orders.begin(), orders.end()), orders.end());
  std::erase(orders, identity(n));
  return orders;
}

/// Returns the groupings with which an algorithm for groups is tried; for others, none.
std::vector<std::vector<Dimension>> dims_for(const Algorithm& algorithm, int n) {
  if (!test::needs_dims(algorithm)) return {{}};
  std::vector<std::vector<Dimension>> all;
  for (const int inner : {2, 3, 4}) {
    if (n % inner == 0 && n > inner) all.push_back({{inner}, {n / inner}});
  }
  // Levels that send several blocks as one message.
  if (n == 16) all.push_back({{4, "doubling"}, {4, "halving_doubling"}});
  if (n == 12) all.push_back({{4, "halving_doubling"}, {3, "circulant"}});
  return all;
}

class Orders : public ::testing::TestWithParam<Algorithm> {};
class OrdersFull : public ::testing::TestWithParam<Algorithm> {};

void verify_sizes(const Algorithm& algorithm, const std::vector<int>& sizes, bool every) {
  for (const int n : sizes) {
    for (const auto& dims : dims_for(algorithm, n)) {
      for (const Order& order : orders_of(n)) {
        for (int channels = 1; channels <= (every ? 3 : 2); ++channels) {
          const int step = !has_root(algorithm.collective) ? n : every || n <= 5 ? 1 : n / 2;
          for (int root = 0; root < n; root += step) {
            const Shape shape{
                .nranks = n, .root = root, .channels = channels, .order = order, .dims = dims};
            if (!algorithm.supports(shape)) continue;
            ASSERT_TRUE(test::verifies(algorithm, shape, every || n <= 8));
          }
        }
      }
    }
  }
}

TEST_P(Orders, VerifiesInAnyOrder) {
  verify_sizes(GetParam(), {1, 2, 3, 4, 5, 7, 8, 12, 16}, false);
}
TEST_P(OrdersFull, VerifiesInAnyOrder) {
  std::vector<int> sizes(17);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {24, 33, 64});
  verify_sizes(GetParam(), sizes, true);
}

TEST_P(Orders, AnOrderChangesNoMessage) {
  const Algorithm& algorithm = GetParam();
  const Collective collective = algorithm.collective;
  if (collective == Collective::kSend || collective == Collective::kRecv) return; // know no order
  for (const int n : {2, 5, 8, 12, 16, 24}) {
    for (const auto& dims : dims_for(algorithm, n)) {
      for (const Order& order : orders_of(n)) {
        const int place = has_root(collective) ? n / 3 : 0;
        const Shape plain{.nranks = n, .root = place, .channels = 2, .dims = dims};
        if (!algorithm.supports(plain)) continue;
        Shape ordered = plain;
        ordered.order = order;
        ordered.root = order[static_cast<std::size_t>(place)];
        const auto expected = verify(build_all(algorithm, plain), {collective, plain.root});
        const auto made = verify(build_all(algorithm, ordered), {collective, ordered.root});
        ASSERT_TRUE(expected.ok() && made.ok()) << made.status().message();
        const std::string what = test::text(algorithm, ordered);
        EXPECT_EQ(made->messages, expected->messages) << what;
        EXPECT_EQ(made->rounds, expected->rounds) << what;
        EXPECT_EQ(made->max_sent_chunks, expected->max_sent_chunks) << what;
        EXPECT_EQ(made->min_slots, expected->min_slots) << what;
      }
    }
  }
}

TEST_P(Orders, TheOrderOfTheRanksIsNone) {
  for (const int n : {1, 2, 8, 12}) {
    Shape plain{.nranks = n, .root = n - 1, .channels = 2};
    if (test::needs_dims(GetParam())) plain.dims = {{2}, {n / 2}};
    if (!GetParam().supports(plain)) continue;
    Shape ordered = plain;
    ordered.order = identity(n);
    EXPECT_EQ(build_all(GetParam(), ordered), build_all(GetParam(), plain));
  }
}

TEST_P(Orders, StaysSmallInAnyOrder) {
  for (const int n : {2, 3, 16, 64, 256}) {
    for (const Order& order : orders_of(n)) {
      Shape shape{.nranks = n, .root = n - 1, .channels = n == 256 ? 1 : 2, .order = order};
      if (test::needs_dims(GetParam())) shape.dims = {{4}, {n / 4}};
      if (!GetParam().supports(shape)) continue;
      for (const int rank : {0, n / 2, n - 1}) {
        const Schedule schedule = build_schedule(GetParam(), shape, rank);
        const int lanes = static_cast<int>(schedule.lanes.size());
        EXPECT_LE(test::load_of(schedule).max_steps, std::max(256, 4 * n)) << lanes;
        for (const Lane& lane : schedule.lanes) ASSERT_LE(lane.peers.size(), 255U);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Orders, ::testing::ValuesIn(all_algorithms()), name_of_test);
INSTANTIATE_TEST_SUITE_P(All, OrdersFull, ::testing::ValuesIn(all_algorithms()), name_of_test);

TEST(Order, NeedsNoScratchForBlocksOfDifferentSizes) {
  // Such blocks are moved by these algorithms, in chunks that are in no scratch.
  for (const auto* name : {"direct", "ring"}) {
    for (const auto collective : {Collective::kReduceScatter, Collective::kAllGather}) {
      const Shape shape{.nranks = 12, .channels = 2, .order = interleaved(12, 4)};
      for (const Schedule& schedule : build_all(*find_algorithm(collective, name), shape)) {
        EXPECT_TRUE(schedule.scratch.empty()) << name;
      }
    }
  }
}

TEST(Order, OfHostsInTurnNeedsFewSteps) {
  // Blocks of neighbours have equal distances, so that repetitions stay.
  const Shape shape{.nranks = 64, .order = interleaved(64, 2)};
  for (const Schedule& schedule :
       build_all(*find_algorithm(Collective::kAllGather, "ring"), shape)) {
    EXPECT_LE(test::load_of(schedule).max_steps, 8);
  }
}

} // namespace
} // namespace whorl
