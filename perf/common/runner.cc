#include "perf/common/runner.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "perf/common/device.h"
#include "perf/common/operators.h"
#include "perf/common/results.h"
#include "perf/common/watched_algorithm.h"

namespace perf {
namespace {

using Clock = std::chrono::steady_clock;

/// Number of elements by which all inputs are shifted from one iteration to the next, so that a
/// result left over from the iteration before is wrong.
constexpr std::size_t kShift = 97;

std::size_t cold_bytes() { return 2 * last_level_cache_bytes(); }

} // namespace

Layout layout_of(const Collective& collective, const Options& options, std::size_t requested,
                 std::size_t element_bytes, int nranks) {
  const std::size_t blocks = collective.blocks_by_rank ? static_cast<std::size_t>(nranks) : 1;
  Layout layout{};
  layout.count = requested / (element_bytes * blocks);
  if (requested > 0) layout.count = std::max<std::size_t>(layout.count, 1);
  layout.bytes = layout.count * element_bytes * blocks;
  layout.first_bytes = static_cast<std::size_t>(options.first_element) * element_bytes;
  layout.slots = 1;
  if (options.mode == Mode::kCold) {
    // Slots a page and two lines apart: no two of them start in the same cache set or share a page.
    layout.stride_bytes = (layout.bytes + 4095) / 4096 * 4096 + 4096 + 128;
    layout.slots = static_cast<int>(std::clamp<std::size_t>(
        cold_bytes() / layout.stride_bytes + 1, 1, static_cast<std::size_t>(options.iterations)));
  }
  return layout;
}

struct Runner::Task {
  const Pattern& pattern;
  DataType type;
  int root;
  int skew;
  Layout layout;
  bool in_place;
  std::vector<RedOp> ops; ///< operator of each local rank
  std::int64_t wrong = 0;
  std::string algorithm;
  int iterations = 0;          ///< number of timed operations
  double time_us = 0;          ///< time of all timed operations
  std::vector<float> times_us; ///< time of each operation; empty: not known

  [[nodiscard]] Place place(const LocalRank& rank) const {
    return {rank.rank, rank.nranks, root, skew};
  }
  [[nodiscard]] std::size_t slot_offset(int slot) const {
    return layout.first_bytes + static_cast<std::size_t>(slot) * layout.stride_bytes;
  }
};

std::size_t Runner::bytes_per_rank(const Collective& collective, const Options& options,
                                   const std::vector<std::size_t>& sizes, int nranks) {
  std::size_t largest = 0;
  for (DataType type : options.types) {
    for (std::size_t size : sizes) {
      const Layout layout = layout_of(collective, options, size, info_of(type).bytes, nranks);
      largest = std::max(largest, layout.arena_bytes());
    }
  }
  return largest;
}

Runner::Runner(const Collective& collective, const Options& options, const Session& session,
               const std::vector<std::size_t>& sizes)
    : collective_(collective),
      options_(options),
      session_(session),
      computing_(options.compute_us) {
  const std::size_t bytes = bytes_per_rank(collective, options, sizes, session.nranks());
  buffers_.reserve(session.ranks().size());
  for (const LocalRank& rank : session.ranks()) {
    if (rank.device >= 0) Device::driver().attach(rank.device);
    GuardedBuffer send(bytes, options.alloc, rank.comm);
    GuardedBuffer recv(bytes, options.alloc, rank.comm);
    buffers_.push_back({std::move(send), std::move(recv)});
  }
  if (options.mode == Mode::kCold) evictor_.resize(cold_bytes());
}

CollectiveCall Runner::call_of(const Task& task, std::size_t local, int slot) const {
  const LocalRank& rank = session_.ranks()[local];
  const Place place = task.place(rank);
  const std::size_t bytes = task.pattern.element_bytes();
  std::byte* recv = buffers_[local].recv.target() + task.slot_offset(slot);
  std::byte* send = buffers_[local].send.target() + task.slot_offset(slot);
  if (task.in_place) {
    const Geometry geometry = collective_.geometry(task.layout.count, place);
    send = recv + geometry.send_offset * bytes;
    recv = recv + geometry.recv_offset * bytes;
  }
  return {send, recv, task.layout.count, task.type, task.ops[local], place, rank.comm, rank.stream};
}

void Runner::run_once(const Task& task, int slot, int times) {
  session_.issue([&](const LocalRank&,
                     std::size_t local) { return collective_.run(call_of(task, local, slot)); },
                 collective_.name, times, collective_.needs_group);
}

void Runner::rewrite(const Task& task, int slot, std::size_t shift) {
  for (std::size_t local = 0; local < buffers_.size(); ++local) {
    const Place place = task.place(session_.ranks()[local]);
    const Geometry geometry = collective_.geometry(task.layout.count, place);
    const std::size_t bytes = task.pattern.element_bytes();
    std::byte* send = (task.in_place ? buffers_[local].recv.data() + geometry.send_offset * bytes
                                     : buffers_[local].send.data()) +
                      task.slot_offset(slot);
    fill(send, geometry.send_count, task.pattern.input(place.rank), bytes, shift);
    const GuardedBuffer& buffer = task.in_place ? buffers_[local].recv : buffers_[local].send;
    buffer.push(static_cast<std::size_t>(send - buffer.data()), geometry.send_count * bytes);
  }
}

/// Frees all buffers and allocates them anew.
void Runner::renew(const Task& task) {
  for (Buffers& buffers : buffers_) {
    for (GuardedBuffer* const buffer : {&buffers.send, &buffers.recv}) {
      guard_damage_ += static_cast<std::int64_t>(buffer->damage());
      buffer->renew();
      buffer->arm(task.layout.arena_bytes());
    }
  }
}

void Runner::prepare(const Task& task, int slot, std::size_t shift) {
  for (const Buffers& buffers : buffers_) {
    std::memset(buffers.recv.data() + task.slot_offset(slot), static_cast<int>(kUntouched),
                task.layout.bytes);
    buffers.recv.push(task.slot_offset(slot), task.layout.bytes);
  }
  rewrite(task, slot, shift);
}

std::size_t Runner::wrong(const Task& task, int slot, std::size_t shift) const {
  std::size_t wrong = 0;
  for (std::size_t local = 0; local < buffers_.size(); ++local) {
    const Place place = task.place(session_.ranks()[local]);
    const std::size_t offset = task.slot_offset(slot);
    buffers_[local].recv.pull(offset, task.layout.bytes);
    if (!task.in_place) buffers_[local].send.pull(offset, task.layout.bytes);
    wrong += count_wrong_results(collective_, task.pattern, place, task.layout.count,
                                 buffers_[local].recv.data() + offset, task.in_place, shift);
    if (!task.in_place) { // out of place, inputs are only read
      const Geometry geometry = collective_.geometry(task.layout.count, place);
      wrong += count_wrong(buffers_[local].send.data() + offset, geometry.send_count,
                           task.pattern.input(place.rank), task.pattern.element_bytes(), shift);
    }
  }
  return wrong;
}

void Runner::evict() {
  for (std::size_t i = 0; i < evictor_.size(); i += 64) evictor_[i] ^= std::byte{1};
}

int Runner::warmup() const {
  return options_.budget_ms > 0 ? std::max(options_.warmup, 1) : options_.warmup;
}

int Runner::iterations_for(double iteration_us, int least) const {
  if (options_.budget_ms == 0) return options_.iterations;
  // All ranks take the number that fits the slowest rank.
  const double slowest_us = std::max(session_.combine(iteration_us, Average::kMax), 1e-3);
  const double fitting = std::min(1e3 * options_.budget_ms / slowest_us, 1e9);
  return std::clamp(static_cast<int>(fitting), std::min(std::max(least, 3), options_.iterations),
                    options_.iterations);
}

/// Returns when all ranks are here: when this rank leaves a barrier or, with --together, at a
/// moment of the clock that the ranks share.
void Runner::meet() const {
  session_.barrier();
  if (!options_.together) return;
  constexpr double kLeadUs = 4; // longer than MPI libraries take to tell ranks of a number
  // By an allreduce or a broadcast, whichever is not measured: libraries remember the last call.
  const double moment = session_.combine(microseconds(Clock::now().time_since_epoch()) + kLeadUs,
                                         collective_.has_root ? Average::kMax : Average::kRank0);
  while (microseconds(Clock::now().time_since_epoch()) < moment) {
  }
}

// Times the mode dirty: rewrite input | meet | clock, operation, clock | read result, and again.
// The meeting keeps the wait for a rank that is still busy with its buffers out of the operation's
// time. In the mode moving, the buffers are freed and allocated before, which is timed as well.
void Runner::time_dirty(Task& task) {
  // In a group on one buffer in place, each operation works on the result of the one before.
  const bool verify = options_.check_iterations > 0 && !(task.in_place && options_.aggregate > 1);
  Clock::duration total{};
  double iteration_us = std::numeric_limits<double>::max(); // fastest, with rewrite and read
  task.iterations = options_.iterations;
  task.times_us.clear();
  prepare(task, 0, 0);
  for (int i = -warmup(); i < task.iterations; ++i) {
    if (i == 0) {
      task.iterations = iterations_for(iteration_us, 1);
      // Written once now, so that no page is touched for the first time between operations.
      task.times_us.assign(static_cast<std::size_t>(task.iterations), 0);
    }
    const auto begin = Clock::now();
    const std::size_t shift = static_cast<std::size_t>(i + warmup()) * kShift;
    Clock::duration renewal{};
    if (options_.mode == Mode::kMoving) {
      renew(task);
      renewal = Clock::now() - begin;
      prepare(task, 0, shift);
    } else {
      rewrite(task, 0, shift);
    }
    meet();
    const auto start = Clock::now();
    run_once(task, 0, options_.aggregate);
    computing_.run();
    auto stop = Clock::now();
    session_.synchronize();
    if (!options_.cpu_time && options_.stream) stop = Clock::now();
    if (i >= 0) {
      total += renewal + (stop - start);
      task.times_us[static_cast<std::size_t>(i)] =
          static_cast<float>(microseconds(renewal + (stop - start)) / options_.aggregate);
    }
    // Reading the result is part of the mode, even where the errors are not counted.
    const std::size_t errors = wrong(task, 0, shift);
    if (verify) task.wrong += static_cast<std::int64_t>(errors);
    if (i < 0) iteration_us = std::min(iteration_us, microseconds(Clock::now() - begin));
  }
  task.time_us = microseconds(total);
}

void Runner::time_back_to_back(Task& task) {
  for (int slot = 0; slot < task.layout.slots; ++slot) prepare(task, slot, 0);
  double iteration_us = std::numeric_limits<double>::max();
  for (int i = 0; i < warmup(); ++i) {
    const auto begin = Clock::now();
    run_once(task, i % task.layout.slots, options_.aggregate);
    computing_.run();
    session_.synchronize();
    iteration_us = std::min(iteration_us, microseconds(Clock::now() - begin));
  }
  task.iterations = iterations_for(iteration_us, task.layout.slots);
  evict();
  session_.barrier();
  const auto start = Clock::now();
  for (int i = 0; i < task.iterations; ++i) {
    run_once(task, i % task.layout.slots, options_.aggregate);
    computing_.run();
    if (options_.blocking) session_.synchronize();
  }
  auto stop = Clock::now();
  session_.synchronize();
  if (!options_.cpu_time && options_.stream) stop = Clock::now();
  if (options_.check_iterations > 0 && !task.in_place) { // in place, results became inputs again
    for (int slot = 0; slot < task.layout.slots; ++slot) {
      task.wrong += static_cast<std::int64_t>(wrong(task, slot, 0));
    }
  }
  task.time_us = microseconds(stop - start);
}

Sample Runner::measure_side(Task& task) {
  for (Buffers& buffers : buffers_) {
    buffers.send.arm(task.layout.arena_bytes());
    buffers.recv.arm(task.layout.arena_bytes());
  }
  if (options_.mode == Mode::kDirty || options_.mode == Mode::kMoving) {
    time_dirty(task);
  } else {
    time_back_to_back(task);
  }

  const WatchedAlgorithm watched; // not before: events take time
  for (int i = 0; i < options_.check_iterations; ++i) {
    const int slot = i % task.layout.slots;
    const std::size_t shift = static_cast<std::size_t>(i + 1) * kShift;
    prepare(task, slot, shift);
    run_once(task, slot, 1);
    session_.synchronize();
    task.wrong += static_cast<std::int64_t>(wrong(task, slot, shift));
  }
  for (const Buffers& buffers : buffers_) {
    guard_damage_ += static_cast<std::int64_t>(buffers.send.damage() + buffers.recv.damage());
  }

  task.algorithm = watched.name();

  Sample sample;
  sample.valid = true;
  sample.iterations = task.iterations;
  sample.time_us = session_.combine(task.time_us, options_.average) /
                   (static_cast<double>(task.iterations) * options_.aggregate * collective_.trips);
  for (float& time_us : task.times_us) time_us /= static_cast<float>(collective_.trips);
  const Percentiles own = percentiles_of(task.times_us);
  sample.percentiles = {.p50_us = session_.combine(own.p50_us, Average::kMax),
                        .p99_us = session_.combine(own.p99_us, Average::kMax),
                        .p999_us = session_.combine(own.p999_us, Average::kMax),
                        .max_us = session_.combine(own.max_us, Average::kMax)};
  sample.algbw_gbs =
      sample.time_us > 0 ? static_cast<double>(task.layout.bytes) / (sample.time_us * 1000) : 0;
  sample.busbw_gbs = sample.algbw_gbs * collective_.bus_factor(session_.nranks());
  const std::int64_t wrong = session_.total(task.wrong);
  if (options_.check_iterations > 0) sample.wrong = wrong;
  return sample;
}

Row Runner::measure(std::size_t requested, const Pattern& pattern, DataType type, Operator op,
                    int root) {
  const Layout layout =
      layout_of(collective_, options_, requested, info_of(type).bytes, session_.nranks());
  Row row{layout.bytes, layout.count, type, op, collective_.has_root ? root : -1};
  Task task{pattern, type, root, options_.skew, layout, false, {}};
  for (const LocalRank& rank : session_.ranks()) {
    task.ops.push_back(make_operator(op, type, rank.comm));
  }
  if (options_.side != Side::kInPlace) row.out_of_place = measure_side(task);
  if (collective_.in_place && options_.side != Side::kOutOfPlace) {
    task.in_place = true;
    task.wrong = 0;
    row.in_place = measure_side(task);
  }
  for (std::size_t i = 0; i < task.ops.size(); ++i) {
    destroy_operator(op, task.ops[i], session_.ranks()[i].comm);
  }
  row.algorithm = task.algorithm;
  row.time = local_time();
  return row;
}

} // namespace perf
