// Prints the limits of this machine as one line of JSON: `raw_limits` those of memory and caches,
// `raw_limits --tcp` round trip and rates of TCP, `raw_limits --exchanges` how long two processes
// take to exchange n bytes by TCP. TCP goes over loopback, or between two network namespaces if
// NAMESPACE_PATH NAMESPACE_PATH ADDRESS follow; ADDRESS belongs to the first namespace.

#include "perf/compare/raw_limits.h"

#include <pthread.h>

#include <cstdio>

namespace limits {

std::vector<int> processors() {
  cpu_set_t allowed;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

} // namespace limits

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string what = arguments.empty() ? "" : arguments[0];
  const bool network = what == "--tcp" || what == "--exchanges";
  if (arguments.size() != (network ? 1u : 0u) && !(network && arguments.size() == 4)) {
    std::fputs("usage: raw_limits [--tcp|--exchanges [NAMESPACE_PATH NAMESPACE_PATH ADDRESS]]\n",
               stderr);
    return 2;
  }
  limits::Figures figures;
  try {
    if (limits::processors().size() < 2) {
      throw limits::Failure("this process may use only one processor.");
    }
    if (network) {
      (what == "--tcp" ? limits::measure_tcp : limits::measure_exchanges)(
          {arguments.begin() + 1, arguments.end()}, &figures);
    } else {
      limits::measure_memory(&figures);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "raw_limits: %s\n", error.what());
    return 1;
  }
  const char* separator = "{";
  for (const auto& [name, value] : figures) {
    std::printf("%s\"%s\": %.4g", separator, name.c_str(), value);
    separator = ", ";
  }
  std::puts("}");
  return 0;
}
