// Kernels of perf/gpu, run on the host.
#include "perf/gpu/kernels.h"

#include "tests/support/fake_cuda/device.h"

namespace fake_cuda {
namespace {

using perf::gpu::Lane;

template <class T>
void reach(T*& address) {
  address = Memory::all().reach(address);
}

template <class Work>
void run_all(const Work& work, std::uint64_t threads) {
  for (std::uint64_t index = 0; index < threads; ++index) work.run(Lane{index, threads});
}

std::function<void()> empty(void**, unsigned) {
  return [] {};
}

std::function<void()> triad(void** parameters, unsigned blocks) {
  return [work = *static_cast<perf::gpu::Triad*>(parameters[0]), blocks]() mutable {
    reach(work.a);
    reach(work.b);
    reach(work.c);
    run_all(work, std::uint64_t{blocks} * perf::gpu::kThreads);
  };
}

std::function<void()> fill(void** parameters, unsigned blocks) {
  return [work = *static_cast<perf::gpu::Fill*>(parameters[0]), blocks]() mutable {
    reach(work.words);
    run_all(work, std::uint64_t{blocks} * perf::gpu::kThreads);
  };
}

/// Runs the ring step by step, in the order that the flags impose on the blocks.
std::function<void()> ring(void** parameters, unsigned) {
  return [work = *static_cast<perf::gpu::RingWork*>(parameters[0])]() mutable {
    for (int rank = 0; rank < work.ranks; ++rank) {
      reach(work.send[rank]);
      reach(work.recv[rank]);
    }
    for (int t = 0; t < work.steps(); ++t) {
      for (int rank = 0; rank < work.ranks; ++rank) {
        for (int channel = 0; channel < work.channels; ++channel) {
          for (std::uint64_t thread = 0; thread < perf::gpu::kThreads; ++thread) {
            work.step(rank, channel, t, Lane{thread, perf::gpu::kThreads});
          }
        }
      }
    }
  };
}

/// Measures nothing.
std::function<void()> costs(void** parameters, unsigned) {
  return [work = *static_cast<perf::gpu::Costs*>(parameters[0])]() mutable {
    reach(work.out);
    work.out[0] = static_cast<std::uint64_t>(work.times);
  };
}

} // namespace

LaunchOf find_perf_kernel(std::string_view name) {
  if (name == "perf_empty") return empty;
  if (name == "perf_triad") return triad;
  if (name == "perf_fill") return fill;
  if (name == "perf_ring") return ring;
  if (name == "perf_costs") return costs;
  return nullptr;
}

} // namespace fake_cuda
