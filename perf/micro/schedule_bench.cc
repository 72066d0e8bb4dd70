// Measures the costs of schedules: building them, and interpreting them with next to no data.
//
//   schedule_bench --benchmark_filter=build
#include <benchmark/benchmark.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/algorithm.h"
#include "exec/execution.h"
#include "schedule/verify.h"

namespace whorl {
namespace {

/// One direction between two ranks of one thread: four slots, no synchronisation.
struct Fifo {
  static constexpr std::size_t kSlots = 4, kSlotBytes = 256;
  struct Slot {
    std::array<std::byte, kSlotBytes> bytes;
    std::size_t size = 0;
    Fingerprint fingerprint;
  };
  std::array<Slot, kSlots> slots;
  std::uint64_t sent = 0, released = 0;
};

class FifoEnd final : public Endpoint {
 public:
  FifoEnd(Fifo& out, Fifo& in) : out_(out), in_(in) {}
  std::span<std::byte> try_reserve(std::size_t = kWholeSlot) noexcept override {
    if (out_.sent - out_.released == Fifo::kSlots) return {};
    return out_.slots[out_.sent % Fifo::kSlots].bytes;
  }
  void commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept override {
    Fifo::Slot& slot = out_.slots[out_.sent % Fifo::kSlots];
    slot.size = bytes;
    slot.fingerprint = fingerprint;
    ++out_.sent;
    ++sent_;
  }
  Message try_peek() noexcept override {
    if (in_.sent == in_.released) return {};
    const Fifo::Slot& slot = in_.slots[in_.released % Fifo::kSlots];
    return {.data = slot.bytes.data(), .bytes = slot.size, .fingerprint = slot.fingerprint};
  }
  void release() noexcept override {
    ++in_.released;
    ++received_;
  }

 private:
  Fifo& out_;
  Fifo& in_;
};

/// Endpoints of all n ranks, in this thread.
class Fabric {
 public:
  Endpoint* end(int self, std::uint32_t peer, std::uint16_t channel) {
    const auto from = static_cast<std::uint32_t>(self);
    auto& end = ends_[{from, peer, channel}];
    if (end == nullptr) {
      end = std::make_unique<FifoEnd>(fifos_[{from, peer, channel}], fifos_[{peer, from, channel}]);
    }
    return end.get();
  }

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint16_t>;
  std::map<Key, Fifo> fifos_;
  std::map<Key, std::unique_ptr<FifoEnd>> ends_;
};

struct View final : Execution::Endpoints {
  View(Fabric& fabric_of_all, int rank) : fabric(fabric_of_all), self(rank) {}
  Endpoint* find(std::uint32_t peer, std::uint16_t channel) noexcept override {
    return fabric.end(self, peer, channel);
  }
  Fabric& fabric;
  int self;
};

void build(benchmark::State& state, const Algorithm& algorithm) {
  const Shape shape{.nranks = static_cast<int>(state.range(0))};
  for (auto _ : state) benchmark::DoNotOptimize(build_schedule(algorithm, shape, 1));
}

void prove(benchmark::State& state, const Algorithm& algorithm) {
  const Shape shape{.nranks = static_cast<int>(state.range(0))};
  const std::vector<Schedule> schedules = build_all(algorithm, shape);
  for (auto _ : state) {
    benchmark::DoNotOptimize(verify(schedules, {.collective = algorithm.collective}));
  }
}

/// Runs all ranks of an allreduce of a few bytes, in turn in one thread. Reports the time for each
/// message.
void interpret(benchmark::State& state, const Algorithm& algorithm) {
  const int n = static_cast<int>(state.range(0));
  const Shape shape{.nranks = n};
  const std::vector<Schedule> schedules = build_all(algorithm, shape);
  const auto count = static_cast<std::size_t>(n);
  const auto map = ChunkMap::make(schedules[0], count, sizeof(float), Fifo::kSlotBytes);
  if (!map.ok()) return state.SkipWithError(map.status().message().c_str());
  Fabric fabric;
  std::vector<Execution> executions(count);
  std::vector<std::vector<float>> in(count, std::vector<float>(count)), out = in;
  std::vector<std::vector<std::byte>> scratch(count);
  std::vector<View> views;
  for (int rank = 0; rank < n; ++rank) views.emplace_back(fabric, rank);
  const auto run = [&] {
    for (std::size_t r = 0; r < count; ++r) {
      Binding binding{
          .schedule = &schedules[r],
          .map = *map,
          .kernels = {.reduce = reduce_kernel(DataType::kFloat32, ReduceOp::kSum, default_simd()),
                      .element_size = sizeof(float)},
          .input = reinterpret_cast<const std::byte*>(in[r].data()),
          .output = reinterpret_cast<std::byte*>(out[r].data())};
      scratch[r].resize(binding.scratch_bytes());
      binding.scratch = scratch[r].data();
      executions[r].start(binding, views[r]);
    }
    for (std::size_t done = 0; done < count;) {
      done = 0;
      for (Execution& execution : executions) {
        done += execution.advance() == Progress::kDone ? 1 : 0;
      }
    }
  };
  run();
  for (auto _ : state) run();
  const auto report = verify(schedules, {});
  if (report.ok()) {
    state.counters["ns/message"] = benchmark::Counter(
        static_cast<double>(report->messages) * 1e-9,
        benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  }
}

void register_all() {
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective != Collective::kAllReduce) continue;
    if (!algorithm.supports({.nranks = 2})) continue;
    const std::string name(algorithm.name);
    const auto add = [&](const char* what, auto function) {
      benchmark::RegisterBenchmark(
          (std::string(what) + "/" + name).c_str(),
          [function, &algorithm](benchmark::State& state) { function(state, algorithm); })
          ->Arg(2)
          ->Arg(8)
          ->Arg(64);
    };
    add("build", build);
    add("prove", prove);
    add("interpret", interpret);
  }
}

} // namespace
} // namespace whorl

int main(int argc, char** argv) {
  whorl::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
