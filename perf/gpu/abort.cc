// Measures how long the kernels of an operation take to leave after an abort.
#include <thread>

#include "perf/common/forked.h"
#include "perf/gpu/rows.h"
#include "perf/gpu/world.h"

namespace perf::gpu {

int measure_abort(const Settings& settings) {
  const Device device;
  const Library whorl = Library::whorl();
  const int type = type_of(settings.type);
  for (const std::size_t bytes : settings.sizes) {
    const Layout layout(Kind::kAllReduce, settings.ranks, bytes);
    const Memory memory(layout.moved());
    const Stream fills;
    device.fill(memory.address(), layout.moved() / 4 * 4, type, fills.get());
    fills.synchronize();
    Rounds rounds;
    for (int round = 0; round < settings.rounds; ++round) {
      World world(whorl, settings.ranks);
      const auto collective = [&] { world.issue(layout, memory.address(), type); };
      collective(); // the first operation allocates
      world.synchronize();
      double begin = now_us();
      collective();
      world.synchronize();
      rounds.add("operation", now_us() - begin);
      collective();
      begin = now_us();
      std::thread aborts([&] { world.abort(); }); // abort() also waits for the kernels
      world.synchronize();
      rounds.add("whorl", now_us() - begin);
      aborts.join();
    }
    emit(settings, {{"collective", "allreduce"},
                    {"ranks", settings.ranks},
                    {"bytes", bytes},
                    {"type", settings.type},
                    {"rounds", settings.rounds},
                    {"us", rounds.us()}});
  }
  return 0;
}

} // namespace perf::gpu
