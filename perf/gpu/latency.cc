// Measures how long a small allreduce takes, against the launch of an empty kernel.
#include "perf/common/forked.h"
#include "perf/gpu/rows.h"
#include "perf/gpu/world.h"

namespace perf::gpu {
namespace {

constexpr int kChain = 20; ///< number of operations in a graph

/// Returns the microseconds from a call until the host knows that the work is done: the median of
/// `times`.
template <class Issue, class Wait>
double to_completion(int times, const Issue& issue, const Wait& wait) {
  std::vector<double> all;
  for (int i = 0; i < times; ++i) {
    const double begin = now_us();
    issue();
    wait();
    all.push_back(now_us() - begin);
  }
  return median(all);
}

} // namespace

int measure_latency(const Settings& settings) {
  const Device device;
  const Library whorl = Library::whorl();
  const World world(whorl, settings.ranks);
  const int type = type_of(settings.type);
  std::vector<CUstream> streams;
  for (const auto& stream : world.streams()) streams.push_back(stream->get());
  Timer all(streams);
  Timer one({streams[0]});
  const int times = settings.ms * 20;
  for (const std::size_t bytes : settings.sizes) {
    const Layout layout(Kind::kAllReduce, settings.ranks, bytes);
    const Memory memory(layout.moved());
    device.fill(memory.address(), layout.moved() / 4 * 4, type, streams[0]);
    PERF_CUDA(cuStreamSynchronize(streams[0]));
    const auto collective = [&] { world.issue(layout, memory.address(), type); };
    const auto empty = [&] { device.empty(streams[0]); };
    const auto chain = [](const auto& operation) {
      return [&operation] {
        for (int i = 0; i < kChain; ++i) operation();
      };
    };
    collective();
    world.synchronize();
    Json row{{"collective", "allreduce"},
             {"ranks", settings.ranks},
             {"bytes", bytes},
             {"type", settings.type},
             {"moved_bytes", layout.moved()}};
    Rounds eager;
    Rounds graph;
    std::unique_ptr<Replay> replay;
    std::unique_ptr<Replay> nothing;
    try {
      replay = std::make_unique<Replay>(all, chain(collective));
      nothing = std::make_unique<Replay>(one, chain(empty));
      replay->run();
      nothing->run();
    } catch (const Failure& failure) {
      row["note"] = std::string("no graphs: ") + failure.what();
    }
    for (int round = 0; round < settings.rounds; ++round) {
      eager.add("whorl", to_completion(times, collective, [&] { world.synchronize(); }));
      eager.add("empty",
                to_completion(times, empty, [&] { PERF_CUDA(cuStreamSynchronize(streams[0])); }));
      eager.add("whorl queued", all.eager(chain(collective)) / kChain);
      eager.add("empty queued", one.eager(chain(empty)) / kChain);
      if (nothing != nullptr) {
        graph.add("whorl", replay->run() / kChain);
        graph.add("empty", nothing->run() / kChain);
      }
    }
    row["rounds"] = settings.rounds;
    row["us"] = eager.us();
    row["graph_us"] = graph.us();
    emit(settings, row);
  }
  return 0;
}

} // namespace perf::gpu
