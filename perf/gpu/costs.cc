// Measures what the device's own steps cost: launches and events in graphs, and the parts of a
// message between blocks.
#include "perf/gpu/kernels.h"
#include "perf/gpu/rows.h"
#include "perf/gpu/world.h"

namespace perf::gpu {
namespace {

constexpr int kNodes = 50; ///< number of launches in a graph
constexpr int kTimes = 1000;

/// Returns the microseconds of one of the launches that `body` queues, in a graph.
double in_graph(const Stream& stream, const Settings& settings,
                const std::function<void(CUstream)>& body) {
  Timer timer({stream.get()});
  const Replay replay(timer, [&] {
    for (int i = 0; i < kNodes; ++i) body(stream.get());
  });
  replay.run();
  std::vector<double> all;
  for (int round = 0; round < settings.rounds; ++round) all.push_back(replay.run() / kNodes);
  return median(all);
}

constexpr int kSectorWords = 8; ///< number of words in 32 bytes
constexpr int kBlocks = 32;

struct Act {
  const char* name;
  Costs::Act act;
  bool on_host; ///< whether the word is in host memory
  int blocks = 1;
  int stride = 0;
};
constexpr Act kActs[] = {
    {"acquire", Costs::kAcquire, false},
    {"acquire of a host word", Costs::kAcquire, true},
    {"relaxed load", Costs::kRelaxed, false},
    {"relaxed load of a host word", Costs::kRelaxed, true},
    {"acquire of one host word by 32 blocks", Costs::kAcquire, true, kBlocks, 0},
    {"acquire of host words by 32 blocks, each its own", Costs::kAcquire, true, kBlocks,
     kSectorWords},
    {"release", Costs::kRelease, false},
    {"release of a host word", Costs::kRelease, true},
    {"fence of the system", Costs::kFence, false},
    {"fence of the device", Costs::kFenceOfDevice, false},
    {"global timer", Costs::kTimer, false},
    {"sleep of 20 ns", Costs::kSleep, false},
    {"barrier of 512 threads", Costs::kBarrier, false},
};

} // namespace

int measure_costs(const Settings& settings) {
  const Device device;
  const Stream stream;
  const Event event(false);
  Json us = Json::object();
  us["launch"] = in_graph(stream, settings, [&](CUstream queue) { device.empty(queue); });
  us["launch of a full grid"] =
      in_graph(stream, settings, [&](CUstream queue) { device.empty_together(queue, false); });
  us["cooperative launch of it"] =
      in_graph(stream, settings, [&](CUstream queue) { device.empty_together(queue, true); });
  us["launch and external event"] = in_graph(stream, settings, [&](CUstream queue) {
    device.empty(queue);
    PERF_CUDA(cuEventRecordWithFlags(event.get(), queue, CU_EVENT_RECORD_EXTERNAL));
  });
  const Memory words(64), out(64);
  const Pinned on_host(std::size_t{4} * kBlocks * kSectorWords);
  for (const Act& one : kActs) {
    const CUdeviceptr word = one.on_host ? on_host.address() : words.address();
    const Costs costs{reinterpret_cast<std::uint32_t*>(word),          one.blocks, one.stride,
                      reinterpret_cast<std::uint64_t*>(out.address()), kTimes,     one.act};
    std::vector<double> all;
    for (int round = 0; round < settings.rounds; ++round) {
      device.costs(costs, stream.get());
      std::uint64_t cycles = 0;
      stream.synchronize();
      PERF_CUDA(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(&cycles), out.address(), sizeof cycles,
                              stream.get()));
      stream.synchronize();
      all.push_back(static_cast<double>(cycles) / device.cycles_per_us() / kTimes);
    }
    us[one.name] = median(all);
  }
  emit(settings, {{"collective", "none"}, {"rounds", settings.rounds}, {"us", us}});
  return 0;
}

} // namespace perf::gpu
