#include "perf/common/replay.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "perf/common/memory.h"
#include "perf/common/operators.h"
#include "perf/common/verify.h"
#include "perf/common/workload.h"

namespace perf {
namespace {

using Clock = std::chrono::steady_clock;

Sample make_sample(double time_us, std::size_t bytes, int nranks, std::int64_t wrong) {
  Sample sample{true, time_us, 0, 0, wrong};
  if (time_us > 0) sample.algbw_gbs = static_cast<double>(bytes) / (time_us * 1000);
  sample.busbw_gbs = sample.algbw_gbs * factor_twice_others(nranks);
  return sample;
}

} // namespace

std::size_t replay_bytes(const Options& options) {
  std::size_t elements = 0, largest = 0;
  for (const Parameter& parameter : model_parameters(options.workload)) {
    elements += parameter.elements;
  }
  for (DataType type : options.types) largest = std::max(largest, info_of(type).bytes);
  return elements * largest;
}

StepResult replay(const Options& options, const Session& session, DataType type, Operator op,
                  std::vector<Row>* rows, std::int64_t* guard_damage) {
  const std::size_t element_bytes = info_of(type).bytes;
  const std::vector<Parameter> parameters = model_parameters(options.workload);
  const std::vector<std::size_t> buckets = gradient_buckets(parameters, element_bytes);
  std::vector<std::size_t> offsets(buckets.size(), 0); // in elements
  std::partial_sum(buckets.begin(), buckets.end() - 1, offsets.begin() + 1);
  const std::size_t elements = offsets.back() + buckets.back();

  const Pattern pattern(type, op, session.nranks());
  std::vector<GuardedBuffer> gradients;
  std::vector<RedOp> ops;
  for (const LocalRank& rank : session.ranks()) {
    gradients.emplace_back(elements * element_bytes, options.alloc, rank.comm);
    gradients.back().arm(elements * element_bytes);
    ops.push_back(make_operator(op, type, rank.comm));
  }
  const auto rewrite = [&](std::size_t shift) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      fill(gradients[i].data(), elements, pattern.input(session.ranks()[i].rank), element_bytes,
           shift);
    }
  };
  std::vector<std::int64_t> wrong(buckets.size(), 0);
  const auto verify = [&](std::size_t shift) {
    for (const GuardedBuffer& gradient : gradients) {
      for (std::size_t b = 0; b < buckets.size(); ++b) {
        wrong[b] += static_cast<std::int64_t>(
            count_wrong(gradient.data() + offsets[b] * element_bytes, buckets[b], pattern.reduced(),
                        element_bytes, offsets[b] + shift));
      }
    }
  };
  std::vector<Clock::duration> bucket_time(buckets.size(), Clock::duration{});
  const auto step = [&] {
    const auto start = Clock::now();
    auto last = start;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      session.issue(
          [&](const LocalRank& rank, std::size_t i) {
            std::byte* bucket = gradients[i].data() + offsets[b] * element_bytes;
            return XCCL(AllReduce)(bucket, bucket, buckets[b], type, ops[i], rank.comm,
                                   rank.stream);
          },
          "AllReduce");
      const auto now = Clock::now();
      bucket_time[b] += now - last;
      last = now;
    }
    session.synchronize();
    return Clock::now() - start;
  };

  Clock::duration total{};
  std::vector<std::byte> evictor(options.mode == Mode::kCold ? 2 * last_level_cache_bytes() : 0);
  rewrite(0);
  for (int i = -options.warmup; i < options.iterations; ++i) {
    const std::size_t shift = static_cast<std::size_t>(i + options.warmup) * 97;
    if (options.mode == Mode::kDirty) rewrite(shift);
    for (std::size_t k = 0; k < evictor.size(); k += 64) evictor[k] ^= std::byte{1};
    session.barrier();
    if (i == 0) std::fill(bucket_time.begin(), bucket_time.end(), Clock::duration{});
    const auto time = step();
    if (i >= 0) total += time;
    if (options.mode == Mode::kDirty && options.check_iterations > 0) verify(shift);
  }
  const auto timed = bucket_time; // without the verified steps below
  for (int i = 0; i < options.check_iterations; ++i) {
    rewrite(static_cast<std::size_t>(i) * 89 + 1);
    step();
    verify(static_cast<std::size_t>(i) * 89 + 1);
  }
  for (const GuardedBuffer& gradient : gradients) {
    *guard_damage += static_cast<std::int64_t>(gradient.damage());
  }
  for (std::size_t i = 0; i < ops.size(); ++i) {
    destroy_operator(op, ops[i], session.ranks()[i].comm);
  }

  const int nranks = session.nranks();
  const bool checked = options.check_iterations > 0;
  std::int64_t all_wrong = 0;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const double time_us =
        session.combine(microseconds(timed[b]), options.average) / options.iterations;
    const std::int64_t errors = session.total(wrong[b]);
    all_wrong += errors;
    const std::size_t bytes = buckets[b] * element_bytes;
    Row row{bytes, buckets[b], type, op, -1, 1, {}, local_time(), {}, {}};
    row.in_place = make_sample(time_us, bytes, nranks, checked ? errors : -1);
    row.in_place.valid = !options.stream;
    rows->push_back(row);
  }
  const double step_us = session.combine(microseconds(total), options.average) / options.iterations;
  return {options.workload,
          type,
          op,
          parameters.size(),
          elements,
          buckets.size(),
          elements * element_bytes,
          make_sample(step_us, elements * element_bytes, nranks, checked ? all_wrong : -1)};
}

} // namespace perf
