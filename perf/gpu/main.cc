// gpu_bench: measures whorl on one device against the device's own limits. perf/gpu/measure.py runs
// it, and makes tables of the JSON rows that it writes, one a line.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>

#include "perf/common/options.h"
#include "perf/gpu/device.h"
#include "perf/gpu/rows.h"

namespace perf::gpu {

int describe_device(const Settings& settings) {
  const Device device;
  emit(settings, {{"name", device.name()},
                  {"cuda_version", device.driver_version()},
                  {"processors", device.processors()},
                  {"cache_bytes", device.cache_bytes()},
                  {"free_bytes", device.free_bytes()},
                  {"peak_bytes_per_s", device.peak()},
                  {"pretended", device.name().starts_with("pretended")}});
  return 0;
}

} // namespace perf::gpu

int main(int argc, char** argv) {
  using namespace perf::gpu; // NOLINT: the program is this
  Settings settings;
  std::vector<std::string> sizes;
  std::string memory;
  CLI::App app("Measures whorl on one device; writes a row of JSON for each size.", "gpu_bench");
  app.require_subcommand(1);
  const auto add = [&](const char* name, const char* what) {
    CLI::App* const part = app.add_subcommand(name, what);
    part->add_option("--name", settings.measurement, "What rows are called");
    part->add_option("-N,--ranks", settings.ranks, "Ranks")->check(CLI::Range(2, 16));
    part->add_option("--sizes", sizes, "Bytes of the larger side: 4K,1M")->delimiter(',');
    part->add_option("-d,--datatype", settings.types,
                     "Datatypes: float,half; latency and processes take one")
        ->delimiter(',');
    part->add_option("--rounds", settings.rounds, "Rounds in which the variants take turns")
        ->check(CLI::Range(1, 1000));
    part->add_option("--ms", settings.ms, "Milliseconds of a variant in a round")
        ->check(CLI::Range(1, 10000));
    part->add_option("--memory", memory, "Device memory to use at most");
    return part;
  };
  CLI::App* const collectives =
      add("collectives", "Ranks of one process against triad, copy, NCCL and a ring kernel");
  collectives
      ->add_option("--collective", settings.collective,
                   "allreduce, reducescatter, allgather or reduce")
      ->transform(CLI::ignore_underscore);
  collectives->add_option("--nccl", settings.nccl, "Path of libnccl.so.2");
  collectives->add_flag("--ring", settings.ring, "Against the ring kernel, too");
  collectives->add_flag("--eager", settings.eager, "No graphs");
  collectives->add_option("--needs", settings.needs, "Nothing unless whorl has this parameter");
  CLI::App* const latency = add("latency", "Small allreduces against an empty kernel");
  CLI::App* const processes = add("processes", "Ranks in processes of their own");
  CLI::App* const identity = add("identity", "Results bit by bit");
  identity->add_option("--path", settings.path,
                       "\"one kernel\" or \"schedules\" in one process, else a name for processes");
  CLI::App* const abort = add("abort", "How soon kernels leave that are to stop");
  CLI::App* const costs = add("costs", "What launches, fences and polls cost");
  CLI::App* const device = add("device", "What the device is");
  CLI11_PARSE(app, argc, argv);

  if (!sizes.empty()) settings.sizes.clear();
  for (const std::string& text : sizes) {
    std::size_t bytes = 0;
    if (!perf::parse_size(text, &bytes) || bytes == 0) {
      std::fprintf(stderr, "gpu_bench: --sizes %s is not a size such as 8, 64K or 1M\n",
                   text.c_str());
      return 2;
    }
    settings.sizes.push_back(bytes);
  }
  if (!memory.empty() && !perf::parse_size(memory, &settings.memory)) {
    std::fprintf(stderr, "gpu_bench: --memory %s is not a size\n", memory.c_str());
    return 2;
  }
  settings.type = settings.types.front();
  try {
    if (collectives->parsed()) return measure_collectives(settings);
    if (latency->parsed()) return measure_latency(settings);
    if (processes->parsed()) return measure_processes(settings);
    if (identity->parsed()) return measure_identity(settings);
    if (abort->parsed()) return measure_abort(settings);
    if (costs->parsed()) return measure_costs(settings);
    if (device->parsed()) return describe_device(settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 1;
  }
  return 2;
}
