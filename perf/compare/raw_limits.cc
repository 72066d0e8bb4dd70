// Prints what this machine can do as one line of JSON: `raw_limits` memory and caches, `raw_limits
// --tcp` TCP over loopback, `raw_limits --tcp NAMESPACE_PATH NAMESPACE_PATH ADDRESS` between two
// network namespaces.

#include "perf/compare/raw_limits.h"

#include <pthread.h>

#include <cstdio>
#include <cstring>

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
  const bool tcp = !arguments.empty() && arguments[0] == "--tcp";
  if (arguments.size() != (tcp ? 1u : 0u) && !(tcp && arguments.size() == 4)) {
    std::fputs("usage: raw_limits [--tcp [NAMESPACE_PATH NAMESPACE_PATH ADDRESS]]\n", stderr);
    return 2;
  }
  limits::Figures figures;
  try {
    if (limits::processors().size() < 2) {
      throw limits::Failure("this process may use only one processor.");
    }
    if (tcp) {
      limits::measure_tcp({arguments.begin() + 1, arguments.end()}, &figures);
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
