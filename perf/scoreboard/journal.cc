#include "perf/scoreboard/journal.h"

#include <unistd.h>

#include <chrono>
#include <thread>

namespace perf {

std::int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

void sleep_until_ns(std::int64_t ns) {
  std::this_thread::sleep_until(
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns)));
}

void Journal::open(int rank) { file_.open(folder_ / ("rank-" + std::to_string(rank) + ".jsonl")); }

void Journal::write(const std::string& event, nlohmann::json more) {
  more["event"] = event;
  more["pid"] = ::getpid();
  more["at_ns"] = now_ns();
  // Texts of other libraries may be in any encoding.
  file_ << more.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

bool Journal::has(const std::string& name) const {
  return ::access((folder_ / name).c_str(), F_OK) == 0;
}

std::int64_t Journal::wait_for(const std::string& name) const {
  while (!has(name)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::int64_t number = 0;
  std::ifstream(folder_ / name) >> number;
  return number;
}

} // namespace perf
