// Tests of averages and premultiplied sums of floating-point numbers against exact arithmetic:
// every type, every algorithm, the ends of the types' ranges. The checked bound is that of
// docs/kernels.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "algorithms/algorithm.h"
#include "engine/request.h"
#include "exec/execution.h"
#include "exec/reference.h"
#include "kernels/convert.h"
#include "tests/support/exact.h"
#include "tests/support/queue_endpoint.h"

namespace whorl {
namespace {

using Bytes = std::vector<std::byte>;
using test::Exact;

constexpr std::uint64_t kSeed = 7;
constexpr std::size_t kSlotBytes = 1024;

/// Floating type: conversions to and from float64, and the limits of its range.
struct Numbers {
  DataType type;
  int digits;      ///< mantissa digits, the first one included
  double largest;  ///< largest finite number
  double normal;   ///< smallest normal number
  double smallest; ///< smallest number above 0

  double decode(const std::byte* at) const {
    switch (type) {
      case DataType::kFloat16:
        return Float16::decode(bits<std::uint16_t>(at));
      case DataType::kBfloat16:
        return Bfloat16::decode(bits<std::uint16_t>(at));
      case DataType::kFloat8e4m3:
        return Float8e4m3::decode(bits<std::uint8_t>(at));
      case DataType::kFloat8e5m2:
        return Float8e5m2::decode(bits<std::uint8_t>(at));
      case DataType::kFloat32:
        return bits<float>(at);
      default:
        return bits<double>(at);
    }
  }
  void encode(double value, std::byte* at) const {
    const auto put = [&](auto code) { std::memcpy(at, &code, sizeof code); };
    const auto narrow = static_cast<float>(value);
    switch (type) {
      case DataType::kFloat16:
        return put(Float16::encode(narrow));
      case DataType::kBfloat16:
        return put(Bfloat16::encode(narrow));
      case DataType::kFloat8e4m3:
        return put(Float8e4m3::encode(narrow));
      case DataType::kFloat8e5m2:
        return put(Float8e5m2::encode(narrow));
      case DataType::kFloat32:
        return put(narrow);
      default:
        return put(value);
    }
  }

 private:
  template <class T>
  static T bits(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
};

const Numbers kNumbers[] = {
    {DataType::kFloat16, 11, 65504, 0x1p-14, 0x1p-24},
    {DataType::kBfloat16, 8, 0x1.fep127, 0x1p-126, 0x1p-133},
    {DataType::kFloat8e4m3, 4, 448, 0x1p-6, 0x1p-9},
    {DataType::kFloat8e5m2, 3, 57344, 0x1p-14, 0x1p-16},
    {DataType::kFloat32, 24, std::numeric_limits<float>::max(), 0x1p-126, 0x1p-149},
    {DataType::kFloat64, 53, std::numeric_limits<double>::max(), 0x1p-1022, 0x1p-1074},
};

/// Number of kinds of elements.
constexpr std::size_t kKinds = 10;
/// Returns rank `rank`'s input for an element of kind `kind`.
double input(const Numbers& numbers, std::size_t kind, int rank, std::mt19937_64& random) {
  const auto any = [&](double most) { // any magnitude up to `most`
    const double fraction = 1 + std::ldexp(static_cast<double>(random() >> 11), -53);
    const int least = std::ilogb(numbers.smallest);
    const int exponent =
        least + static_cast<int>(random() % static_cast<std::uint64_t>(std::ilogb(most) - least));
    return (random() % 2 != 0 ? 1 : -1) * std::ldexp(fraction, exponent);
  };
  switch (kind) {
    case 0:
      return numbers.largest;
    case 1:
      return -numbers.largest;
    case 2:
      return rank % 2 != 0 ? numbers.largest : -numbers.largest;
    case 3:
      return numbers.normal;
    case 4:
      return numbers.smallest;
    case 5:
      return rank % 3 == 0 ? numbers.largest : numbers.smallest;
    case 6:
      return rank == 0 ? numbers.largest : 0;
    case 7:
      return rank % 2 != 0 ? 1.5 : 1.0;
    case 8:
      return any(2 * numbers.normal);
    default:
      return any(numbers.largest);
  }
}

bool is_wide(DataType type) { return type == DataType::kFloat32 || type == DataType::kFloat64; }

/// Counts how often a result has been rounded, at most, instead of adding up. float32 and float64
/// are rounded after each addition, other types after each step.
template <bool kWide>
void count_roundings(std::span<const void* const> sources, void* destination, std::size_t count,
                     Averaging) noexcept {
  const std::size_t more = kWide ? sources.size() - 1 : 1;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t most = 0;
    for (const void* source : sources) {
      most = std::max(most, static_cast<const std::uint16_t*>(source)[i]);
    }
    static_cast<std::uint16_t*>(destination)[i] = static_cast<std::uint16_t>(most + more);
  }
}

/// Buffers of all ranks, out of place.
struct World {
  World(const Request& request, int nranks) {
    for (int rank = 0; rank < nranks; ++rank) {
      inputs.emplace_back(input_bytes(request, rank, nranks) + 8);
      outputs.emplace_back(output_bytes(request, rank, nranks) + 8);
    }
  }
  std::vector<ReferenceBuffers> buffers() {
    std::vector<ReferenceBuffers> all;
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      all.push_back({inputs[rank].data(), outputs[rank].data()});
    }
    return all;
  }
  std::vector<Bytes> inputs, outputs;
};

/// Runs all ranks in this thread, a little of each in turn.
void execute(const std::vector<Schedule>& schedules, const ChunkMap& map,
             const MoveKernels& kernels, bool publishes, World& world) {
  test::QueueFabric fabric(4, kSlotBytes, publishes, false);
  std::vector<Execution> executions(schedules.size());
  std::vector<Bytes> scratch(schedules.size());
  for (std::size_t rank = 0; rank < executions.size(); ++rank) {
    Binding binding{.schedule = &schedules[rank],
                    .map = map,
                    .kernels = kernels,
                    .input = world.inputs[rank].data(),
                    .output = world.outputs[rank].data(),
                    .nontemporal_output = publishes,
                    .fingerprint = {.sequence = 1}};
    scratch[rank].resize(binding.scratch_bytes() + 1);
    binding.scratch = scratch[rank].data();
    auto view = fabric.view(static_cast<int>(rank));
    executions[rank].start(binding, view);
  }
  for (std::size_t done = 0, turns = 0; done < executions.size(); ++turns) {
    ASSERT_LT(turns, 100'000U);
    done = 0;
    for (Execution& execution : executions) {
      const Progress progress = execution.advance();
      ASSERT_NE(progress, Progress::kFailed);
      done += progress == Progress::kDone ? 1 : 0;
    }
  }
}

/// Checks, in exact arithmetic, that |multiple·result − Σ inputs| is at most
///     relative·(Σ|inputs| + units·s/2) + (units + multiple)·s/2
/// with s the smallest number above 0.
void check(const Numbers& numbers, std::span<const double> inputs, double result,
           std::int64_t multiple, std::int64_t units, double relative) {
  ASSERT_TRUE(std::isfinite(result)) << result;
  ASSERT_LE(std::fabs(result), numbers.largest);
  // Both sides are doubled and multiplied by 2^shift, so that all numbers are multiples of float64
  // ones.
  const int shift = numbers.digits + 10;
  const auto factor = static_cast<std::int64_t>(std::ceil(std::ldexp(relative, shift)));
  for (const std::int64_t sign : {-1, 1}) {
    Exact slack;
    slack.add(numbers.smallest, units * factor);
    slack.add(numbers.smallest, units + multiple, shift);
    slack.add(result, 2 * sign * multiple, shift);
    for (const double x : inputs) {
      slack.add(std::fabs(x), 2 * factor);
      slack.add(x, -2 * sign, shift);
    }
    ASSERT_GE(slack.sign(), 0) << "result " << result << " of " << inputs[0] << ", " << inputs[1]
                               << ", …";
  }
}

/// One algorithm on one number of ranks.
class Trial {
 public:
  Trial(const Algorithm& algorithm, int nranks)
      : algorithm_(algorithm), nranks_(nranks), shape_{.nranks = nranks, .root = nranks / 2} {
    if (nranks % 4 == 0) {
      shape_.dims = {{.size = 4, .algorithm = {}}, {.size = nranks / 4, .algorithm = {}}};
    }
  }
  bool possible() const { return algorithm_.supports(shape_); }

  void run(const Numbers& numbers) {
    SCOPED_TRACE(::testing::Message() << name_of(algorithm_.collective) << " " << algorithm_.name
                                      << " of " << name_of(numbers.type) << " on " << nranks_);
    numbers_ = &numbers;
    schedules_ = build_all(algorithm_, shape_);
    request_ = {.collective = algorithm_.collective,
                .type = numbers.type,
                .peer = shape_.root,
                .count = algorithm_.collective == Collective::kReduceScatter ? kKinds : 7 * kKinds};
    const auto map =
        ChunkMap::make(schedules_[0], request_.count, size_of(numbers.type), kSlotBytes);
    ASSERT_TRUE(map.ok()) << map.status().message();
    map_ = *map;
    const std::vector<Bytes> roundings = find_roundings();
    for (const bool average : {true, false}) {
      SCOPED_TRACE(average ? "average" : "premultiplied sum");
      MoveKernels kernels = kernels_of(numbers.type, average ? ReduceOp::kAvg : ReduceOp::kSum,
                                       nranks_, algorithm_.at_once, Simd::kScalar);
      // Half of the factor that averages use: even with three bits no sum overflows.
      const int k = average_scale(numbers.type, nranks_).k + 1;
      if (!average) {
        kernels.scale = scale_kernel(numbers.type, Simd::kScalar);
        numbers.encode(std::ldexp(1.0, -k), kernels.factor.bytes.data());
      }
      World expected = make_world();
      const Status status = run_reference(schedules_, map_, kernels, expected.buffers());
      ASSERT_TRUE(status.ok()) << status.message();
      World actual = make_world();
      execute(schedules_, map_, kernels, nranks_ % 2 != 0, actual);
      ASSERT_TRUE(actual.outputs == expected.outputs);
      const std::int64_t terms = nranks_;
      if (average) {
        const bool scales = kernels.scale != nullptr || is_wide(numbers.type);
        const int scaled =
            kernels.scale != nullptr
                ? kernels.averaging.scaled
                : static_cast<int>(std::bit_width(static_cast<unsigned>(nranks_ - 1)));
        check_all(actual, roundings, terms, scales ? terms << scaled : 0);
      } else {
        check_all(actual, roundings, std::int64_t{1} << k, terms << k);
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  World make_world() const {
    World world(request_, nranks_);
    std::mt19937_64 random(kSeed);
    const std::size_t element = size_of(request_.type);
    for (int rank = 0; rank < nranks_; ++rank) {
      Bytes& bytes = world.inputs[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < bytes.size() / element; ++i) {
        const double value = input(*numbers_, i % kKinds, rank, random);
        numbers_->encode(value, bytes.data() + i * element);
      }
    }
    return world;
  }

  /// Returns how often elements of the outputs have been rounded, as 16-bit numbers.
  std::vector<Bytes> find_roundings() const {
    Request counts = request_;
    counts.type = DataType::kUint16;
    World world(counts, nranks_);
    ChunkMap map = map_;
    const MoveKernels kernels{
        .reduce = is_wide(request_.type) ? count_roundings<true> : count_roundings<false>,
        .element_size = 2};
    const Status status = run_reference(schedules_, map, kernels, world.buffers());
    EXPECT_TRUE(status.ok()) << status.message();
    return world.outputs;
  }

  /// Checks the elements of all ranks. An element that has been checked on the rank before, with
  /// the same inputs, result and number of roundings, is not checked again.
  void check_all(const World& world, const std::vector<Bytes>& roundings, std::int64_t multiple,
                 std::int64_t units) const {
    const std::size_t element = size_of(request_.type);
    std::vector<double> inputs(static_cast<std::size_t>(nranks_));
    for (int rank = 0; rank < nranks_; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const bool scattered = request_.collective == Collective::kReduceScatter;
      const std::size_t begin = scattered ? r * request_.count : 0;
      const std::size_t count = output_bytes(request_, rank, nranks_) / element;
      const auto same_as_before = [&](const std::vector<Bytes>& bytes, std::size_t i,
                                      std::size_t size) {
        return std::memcmp(bytes[r].data() + i * size, bytes[r - 1].data() + i * size, size) == 0;
      };
      for (std::size_t i = 0; i < count; ++i) {
        if (r > 0 && request_.collective == Collective::kAllReduce &&
            same_as_before(world.outputs, i, element) && same_as_before(roundings, i, 2)) {
          continue;
        }
        for (std::size_t from = 0; from < inputs.size(); ++from) {
          inputs[from] = numbers_->decode(world.inputs[from].data() + (begin + i) * element);
        }
        std::uint16_t times = 0;
        std::memcpy(&times, roundings[r].data() + 2 * i, sizeof times);
        // Inputs or the quotient are rounded once more, and narrow types in float32, too.
        const double relative =
            std::expm1((times + 1) * std::log1p(std::ldexp(1.0, -numbers_->digits)) +
                       (is_wide(request_.type) ? 0 : nranks_ + 2) * 0x1p-24) *
            1.001;
        check(*numbers_, inputs, numbers_->decode(world.outputs[r].data() + i * element), multiple,
              units, relative);
        ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "rank " << rank << ", element " << i;
      }
    }
  }

  const Algorithm& algorithm_;
  const int nranks_;
  Shape shape_;
  const Numbers* numbers_ = nullptr;
  std::vector<Schedule> schedules_;
  Request request_;
  ChunkMap map_;
};

class Averages : public ::testing::TestWithParam<int> {};

TEST_P(Averages, AreAsExactAsStated) {
  for (const Algorithm& algorithm : all_algorithms()) {
    Trial trial(algorithm, GetParam());
    if (!reduces(algorithm.collective) || !trial.possible()) continue;
    for (const Numbers& numbers : kNumbers) {
      trial.run(numbers);
      if (HasFatalFailure()) return;
    }
  }
}
const auto kRanks = [](const auto& ranks) { return std::to_string(ranks.param); };
INSTANTIATE_TEST_SUITE_P(Some, Averages, ::testing::Values(2, 3, 4, 5, 7, 8, 16, 17), kRanks);
INSTANTIATE_TEST_SUITE_P(Full, Averages, ::testing::Range(2, 65), kRanks);

/// Checks the partial sums of the largest number after scaling, in the worst order of additions:
/// the sum of two partial sums of m numbers is rounded up the most where both are as large as
/// possible. Rounding is monotonic, so no other numbers give larger sums.
TEST(Averages, HaveNoPartialSumBeyondTheRange) {
  constexpr int kMaxRanks = 1024;
  for (const Numbers& numbers : kNumbers) {
    if (is_wide(numbers.type)) continue; // with more digits, rounding adds less
    alignas(8) std::byte code[8];
    for (int ranks = 2; ranks <= kMaxRanks; ranks *= 2) {
      const double first = std::ldexp(numbers.largest, -average_scale(numbers.type, ranks).k);
      std::vector<double> rounded(static_cast<std::size_t>(ranks) + 1);
      std::vector<double> exact(rounded.size()); // index: number of summands
      rounded[1] = exact[1] = first;
      for (std::size_t m = 2; m < rounded.size(); ++m) {
        for (std::size_t a = 1; a < m; ++a)
          exact[m] = std::max(exact[m], exact[m - a] + rounded[a]);
        numbers.encode(exact[m], code);
        rounded[m] = numbers.decode(code);
        exact[m] = std::max(exact[m], rounded[m]);
      }
      EXPECT_LE(rounded.back(), numbers.largest) << name_of(numbers.type) << " on " << ranks;
    }
  }
}

/// Checks that averages are made at once exactly where the algorithm's schedules say so.
TEST(Averages, AreMadeAtOnceWhereAnAlgorithmSaysSo) {
  for (const Algorithm& algorithm : all_algorithms()) {
    if (!reduces(algorithm.collective)) continue;
    bool at_once = true;
    for (const int n : {2, 3, 5, 8, 16}) {
      Shape shape{.nranks = n};
      if (n % 4 == 0) shape.dims = {{.size = 4, .algorithm = {}}, {.size = n / 4, .algorithm = {}}};
      if (!algorithm.supports(shape)) continue;
      for (const Schedule& schedule : build_all(algorithm, shape)) {
        for (const Lane& lane : schedule.lanes) {
          for (const Step& step : lane.steps) {
            if (step.reduces()) at_once = at_once && step.final() && step.fan_in() == n - 1;
          }
        }
      }
    }
    if (algorithm.name == "hierarchical" || algorithm.name == "leaders") continue;
    EXPECT_EQ(algorithm.at_once, at_once) << name_of(algorithm.collective) << " " << algorithm.name;
  }
}

} // namespace
} // namespace whorl
