#include "perf/common/report.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

namespace perf {
namespace {

__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  return line;
}

/// Returns the number with as many decimals as fit into seven characters.
std::string format_number(double value, int width) {
  const int decimals = value >= 10000 ? 0 : value >= 100 ? 1 : value >= 10 ? 2 : 3;
  return text("%*.*f", width, decimals, value);
}

std::string format_sample(const Sample& sample) {
  if (!sample.valid) return text("  %7s %7s %7s %6s", "N/A", "N/A", "N/A", "N/A");
  const std::string wrong =
      sample.wrong < 0 ? "N/A" : text("%lld", static_cast<long long>(sample.wrong));
  return "  " + format_number(sample.time_us, 7) + text(" %7.2f", sample.algbw_gbs) +
         text(" %7.2f", sample.busbw_gbs) + text(" %6s", wrong.c_str());
}

nlohmann::json json_sample(const Sample& sample) {
  if (!sample.valid) return nullptr;
  const Percentiles& of = sample.percentiles;
  const auto if_timed = [&](double us) { // null in modes that do not time single operations
    return of.max_us > 0 ? nlohmann::json(us) : nlohmann::json(nullptr);
  };
  nlohmann::json out{{"time_us", sample.time_us},     {"p50_us", if_timed(of.p50_us)},
                     {"p99_us", if_timed(of.p99_us)}, {"p999_us", if_timed(of.p999_us)},
                     {"max_us", if_timed(of.max_us)}, {"iterations", sample.iterations},
                     {"algbw_gbs", sample.algbw_gbs}, {"busbw_gbs", sample.busbw_gbs}};
  out["wrong"] = sample.wrong < 0 ? nlohmann::json(nullptr) : nlohmann::json(sample.wrong);
  return out;
}

/// Returns the time as strftime() formats it, in the zone of localtime_r() or of gmtime_r().
std::string time_now(const char* format, std::tm* (*zone)(const std::time_t*, std::tm*)) {
  const std::time_t now = std::time(nullptr);
  std::tm fields{};
  zone(&now, &fields);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), format, &fields);
  return text.data();
}

/// Returns the variables that whorl reads, with their values.
nlohmann::json settings() {
  auto found = nlohmann::json::object();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const std::size_t equals = line.find('=');
    if (!line.starts_with("WHORL_") || equals == std::string_view::npos) continue;
    if (line == "WHORL_PROFILER_PLUGIN=STATIC") continue; // set by offer_profiler()
    found[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  return found;
}

const char* mode_sentence(Mode mode) {
  switch (mode) {
    case Mode::kDirty:
      return "every rank rewrites its input and reads its result between operations, each of "
             "which is timed by itself";
    case Mode::kMoving:
      return "as dirty, on buffers that are freed and allocated anew within the time of each "
             "operation";
    case Mode::kWarm:
      return "operations back to back on the same buffers, untouched in between";
    case Mode::kCold:
      return "operations back to back on buffers that are not in the caches";
  }
  return "";
}

} // namespace

Percentiles percentiles_of(std::vector<float>& times_us) {
  if (times_us.empty()) return {};
  std::sort(times_us.begin(), times_us.end());
  // The nearest rank: the least time that at least this part of all does not exceed.
  const auto at = [&](double part) -> double {
    const double rank = std::ceil(part * static_cast<double>(times_us.size()) - 1e-9);
    return times_us[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
  };
  return {.p50_us = at(0.5), .p99_us = at(0.99), .p999_us = at(0.999), .max_us = at(1)};
}

Machine this_machine() {
  Machine machine{};
  machine.cores = static_cast<int>(std::thread::hardware_concurrency());
  machine.memory_bytes = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  utsname name{};
  if (uname(&name) == 0) {
    machine.kernel = std::string(name.sysname) + " " + name.release + " " + name.machine;
  }
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; machine.processor.empty() && std::getline(cpuinfo, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      machine.processor = line.substr(colon + 2);
    }
  }
  return machine;
}

std::string local_time() { return time_now("%Y-%m-%d %H:%M:%S", ::localtime_r); }

std::string format_header(const std::string& program, const Options& options, const Job& job) {
  const auto& [launcher, ranks, topology] = job;
  std::set<std::string> hosts;
  std::set<std::pair<std::string, int>> processes;
  for (const RankInfo& rank : ranks) {
    hosts.insert(rank.host);
    processes.insert({rank.host, rank.pid});
  }
  std::string out =
      text("# %s: %zu rank%s in %zu process%s on %zu host%s, ", program.c_str(), ranks.size(),
           ranks.size() == 1 ? "" : "s", processes.size(), processes.size() == 1 ? "" : "es",
           hosts.size(), hosts.size() == 1 ? "" : "s");
  out += launcher != nullptr
             ? text("started by %s\n", launcher)
             : text("started by the program itself (%s)\n",
                    options.ranks_given ? "--ranks" : "--ranks not given: one per core");
  if (launcher == nullptr && options.binds()) out += "# each process bound to a core of its own\n";
  if (!topology.empty()) out += "# " + topology + "\n";
  out += text("# nThread %d nGpus %d minBytes %zu maxBytes %zu step: ", options.threads,
              options.ranks_per_thread, options.min_bytes, options.max_bytes);
  out += !options.sizes.empty()   ? "none(sizes)"
         : options.step_bytes > 0 ? text("%zu(bytes)", options.step_bytes)
                                  : text("%g(factor)", options.step_factor);
  out += text(" warmup iters: %d iters: %d agg iters: %d validation: %d\n", options.warmup,
              options.iterations, options.aggregate, options.check_iterations);
  out += text("# mode %s: %s%s\n", name_of(options.mode), mode_sentence(options.mode),
              options.together ? "; all ranks begin each operation at the same moment" : "");
  out += text("# buffers %s, %s%s\n", name_of(options.alloc),
              options.alloc == Alloc::kDevice ? "asynchronous on a stream of the device"
              : options.stream                ? "asynchronous on a host stream"
                                              : "calls return when complete",
              options.blocking ? ", one at a time" : "");
  if (options.compute_us > 0) {
    out += text("# time includes %g us of computing %s\n", options.compute_us,
                options.stream ? "between call and wait" : "after the call");
  }
  if (options.first_element > 0) {
    out += text("# buffers begin %d elements behind a page\n", options.first_element);
  }
  for (const std::string& note : options.notes) out += "# " + note + "\n";
  out += "#\n# Using ranks\n";
  for (const RankInfo& rank : ranks) {
    out +=
        text("#  Rank %2d Pid %6d Thread %2d on %s", rank.rank, rank.pid, rank.thread, rank.host);
    if (rank.device >= 0) out += text(" device %2d %s", rank.device, rank.device_name);
    if (rank.transports[0] != '\0') out += text(" over %s", rank.transports);
    out += "\n";
  }
  out += "#\n";
  out += text("# %63s  %30s  %30s\n", "", "        out-of-place          ",
              "          in-place            ");
  out += text("# %11s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
  for (int side = 0; side < 2; ++side) {
    out += text("  %7s %7s %7s %6s", "time", "algbw", "busbw", "#wrong");
  }
  if (options.timestamps) out += "  timestamp";
  out += text("\n# %11s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
  for (int side = 0; side < 2; ++side)
    out += text("  %7s %7s %7s %6s", "(us)", "(GB/s)", "(GB/s)", "");
  return out + "\n";
}

std::string format_row(const Row& row, bool timestamps) {
  return text("%13zu  %12zu  %8s  %6s  %6d", row.bytes, row.count, info_of(row.type).name,
              name_of(row.op), row.root) +
         format_sample(row.out_of_place) + format_sample(row.in_place) +
         (timestamps ? "  " + row.time : "") + "\n";
}

std::string format_percentiles(const Row& row) {
  std::string out;
  const auto add = [&](const char* side, const Sample& sample) {
    if (!sample.valid) return;
    const Percentiles& of = sample.percentiles;
    out += text("#   %-12s p50 %s  p99 %s  p99.9 %s  max %s us, of %d operations\n", side,
                format_number(of.p50_us, 7).c_str(), format_number(of.p99_us, 7).c_str(),
                format_number(of.p999_us, 7).c_str(), format_number(of.max_us, 7).c_str(),
                sample.iterations);
  };
  add("out-of-place", row.out_of_place);
  add("in-place", row.in_place);
  return out;
}

std::string format_summary(const Summary& summary) {
  const char* comm_error = summary.out_of_bounds != 0 ? "FAILED" : "OK";
  return text("# Out of bounds values : %lld %s%s\n", static_cast<long long>(summary.out_of_bounds),
              comm_error, summary.verified ? "" : " (results not verified: -c 0)") +
         text("# Avg bus bandwidth    : %g \n", summary.avg_busbw_gbs) + "#\n";
}

std::string format_memory(const Summary& summary) {
  constexpr double kMiB = 1 << 20;
  return text("# Memory of the rank that uses most: communicator %.1f MiB, buffers %.1f MiB\n",
              static_cast<double>(summary.communicator_bytes) / kMiB,
              static_cast<double>(summary.buffer_bytes) / kMiB);
}

std::string format_step(const StepResult& step) {
  return text("# %s: %zu parameter tensors, %zu elements of %s, %zu buckets, %zu bytes\n",
              step.model.c_str(), step.parameters, step.elements, info_of(step.type).name,
              step.buckets, step.bytes) +
         text("# Time per step : %.1f us, algbw %.2f GB/s, busbw %.2f GB/s\n", step.sample.time_us,
              step.sample.algbw_gbs, step.sample.busbw_gbs);
}

Summary summarize(const std::vector<Row>& rows, const std::vector<StepResult>& steps,
                  std::int64_t guard_damage, bool verified) {
  Summary summary;
  summary.out_of_bounds = guard_damage;
  summary.verified = verified;
  double total = 0;
  int samples = 0;
  for (const Row& row : rows) {
    for (const Sample& sample : {row.out_of_place, row.in_place}) {
      if (!sample.valid || !steps.empty()) continue;
      total += sample.busbw_gbs;
      ++samples;
      if (sample.wrong > 0) summary.out_of_bounds += sample.wrong;
    }
  }
  for (const StepResult& step : steps) {
    total += step.sample.busbw_gbs;
    ++samples;
    if (step.sample.wrong > 0) summary.out_of_bounds += step.sample.wrong;
  }
  if (samples > 0) summary.avg_busbw_gbs = total / samples;
  return summary;
}

std::string to_json(const std::string& program, const Options& options, const Job& job,
                    const Machine& machine, const std::vector<Row>& rows,
                    const std::vector<StepResult>& steps, const Summary& summary) {
  const auto& [launcher, ranks, topology] = job;
  nlohmann::json out;
  out["program"] = program;
  out["version"] = library_version();
  out["command"] = options.command;
  out["date"] = time_now("%Y-%m-%dT%H:%M:%SZ", ::gmtime_r);
  out["environment"] = settings();
  out["config"] = {{"mode", name_of(options.mode)},
                   {"alloc", name_of(options.alloc)},
                   {"stream", options.stream},
                   {"blocking", options.blocking},
                   {"compute_us", options.compute_us},
                   {"iterations", options.iterations},
                   {"warmup", options.warmup},
                   {"check", options.check_iterations},
                   {"aggregate", options.aggregate},
                   {"first_element", options.first_element},
                   {"cycles", options.cycles},
                   {"average", static_cast<int>(options.average)},
                   {"threads", options.threads},
                   {"ranks_per_thread", options.ranks_per_thread},
                   {"together", options.together},
                   {"workload", options.workload},
                   {"launcher", launcher != nullptr ? launcher : "none"}};
  out["machine"] = {{"processor", machine.processor},
                    {"kernel", machine.kernel},
                    {"cores", machine.cores},
                    {"memory_bytes", machine.memory_bytes}};
  out["topology"] = topology;
  out["ranks"] = nlohmann::json::array();
  for (const RankInfo& rank : ranks) {
    out["ranks"].push_back({{"rank", rank.rank},
                            {"pid", rank.pid},
                            {"thread", rank.thread},
                            {"host", rank.host},
                            {"transports", rank.transports}});
    if (rank.device < 0) continue;
    out["ranks"].back()["device"] = rank.device;
    out["ranks"].back()["device_name"] = rank.device_name;
  }
  out["rows"] = nlohmann::json::array();
  for (const Row& row : rows) {
    out["rows"].push_back({{"bytes", row.bytes},
                           {"count", row.count},
                           {"type", info_of(row.type).name},
                           {"redop", name_of(row.op)},
                           {"root", row.root},
                           {"algorithm", row.algorithm},
                           {"cycle", row.cycle},
                           {"time", row.time},
                           {"out_of_place", json_sample(row.out_of_place)},
                           {"in_place", json_sample(row.in_place)}});
  }
  for (const StepResult& step : steps) {
    out["steps"].push_back({{"model", step.model},
                            {"type", info_of(step.type).name},
                            {"redop", name_of(step.op)},
                            {"parameters", step.parameters},
                            {"elements", step.elements},
                            {"buckets", step.buckets},
                            {"bytes", step.bytes},
                            {"in_place", json_sample(step.sample)}});
  }
  out["out_of_bounds"] = summary.out_of_bounds;
  out["avg_busbw_gbs"] = summary.avg_busbw_gbs;
  out["init_ms"] = summary.init_ms;
  out["communicator_bytes"] = summary.communicator_bytes;
  out["buffer_bytes"] = summary.buffer_bytes;
  out["verified"] = summary.verified;
  // Words of the command line and values of variables may be any bytes.
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

} // namespace perf
