#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "perf/gpu/device.h"

namespace perf::gpu {

using Json = nlohmann::json;

/// Checked command line.
struct Settings {
  std::string measurement; ///< name of the measurement in the rows, "M1"
  std::string collective = "allreduce";
  std::vector<std::string> types{"float"};
  std::string type = "float"; ///< type that is being measured
  std::string path;           ///< path through the library whose results measure_identity() checks
  std::vector<std::size_t> sizes{4096};
  int ranks = 2;
  int rounds = 7;
  int ms = 3;             ///< milliseconds of one variant in one round
  std::size_t memory = 0; ///< bytes to use at most; 0: most of the free memory
  std::string nccl;       ///< path of an NCCL; empty: none
  std::string needs;      ///< name of a parameter that whorl must have
  bool ring = false;      ///< true: measure the ring kernel, too
  bool eager = false;     ///< true: no graphs
};

/// Writes a row at once, so that it is kept if the program does not run to its end.
inline void emit(const Settings& settings, Json row) {
  row["measurement"] = settings.measurement;
  std::printf("%s\n", row.dump().c_str());
  std::fflush(stdout);
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Times of variants that run in turn: A B C A B C ….
class Rounds {
 public:
  void add(const std::string& variant, double us) { times_[variant].push_back(us); }
  /// Returns the median time of each variant in microseconds.
  [[nodiscard]] Json us() const {
    Json out = Json::object();
    for (const auto& [variant, times] : times_) out[variant] = median(times);
    return out;
  }
  [[nodiscard]] Json min_us() const {
    Json out = Json::object();
    for (const auto& [variant, times] : times_) {
      out[variant] = *std::min_element(times.begin(), times.end());
    }
    return out;
  }
  /// Returns the ratios of each other variant's time to that of `variant`: the medians over the
  /// rounds.
  [[nodiscard]] Json ratios(const std::string& variant) const {
    Json out = Json::object();
    const auto own = times_.find(variant);
    if (own == times_.end()) return out;
    for (const auto& [other, times] : times_) {
      if (other == variant || times.size() != own->second.size()) continue;
      std::vector<double> quotients;
      for (std::size_t i = 0; i < times.size(); ++i) {
        if (own->second[i] > 0) quotients.push_back(times[i] / own->second[i]);
      }
      out[other] = median(quotients);
    }
    return out;
  }

 private:
  std::map<std::string, std::vector<double>> times_;
};

// Parts of the program, which return its exit status.
int measure_collectives(const Settings& settings); ///< measures M1, M2, M6, M7
int measure_latency(const Settings& settings);     ///< measures M3
int measure_processes(const Settings& settings);   ///< measures M4, M5
int measure_identity(const Settings& settings);    ///< measures M8
int measure_abort(const Settings& settings);       ///< measures M9
int measure_costs(const Settings& settings);       ///< measures M10
int describe_device(const Settings& settings);

} // namespace perf::gpu
