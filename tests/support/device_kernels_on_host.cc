#include <thread>
#include <vector>

#include "tests/support/device_kernels.h"
#include "tests/support/host_interpreters.h"
#include "tests/support/host_kernels.h"

namespace whorl::test {

void run_combine(const std::string& kernel, const gpu::Work& work, const gpu::Grid& grid) {
  host_kernels().at(kernel)(work, grid);
}

void run_interpreter(const std::string& kernel, const gpu::Launch& launch, unsigned threads,
                     int absent) {
  const HostInterpreter interpreter = host_interpreters().at(kernel);
  std::vector<std::thread> blocks;
  for (std::uint32_t y = 0; y < launch.n_ranks; ++y) {
    if (static_cast<int>(y) == absent) continue;
    for (std::uint32_t x = 0; x < launch.lanes * launch.instances; ++x) {
      blocks.emplace_back([&, x, y] { interpreter(launch, x, y, threads); });
    }
  }
  for (std::thread& block : blocks) block.join();
}

} // namespace whorl::test
