#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace perf {

/// Returns the time in nanoseconds of the clock that all processes of a host share.
std::int64_t now_ns();
/// Sleeps until that clock has come to `ns`.
void sleep_until_ns(std::int64_t ns);

/// Folder through which the driver and the ranks of one run tell each other where they are. A rank
/// writes lines of JSON to a file of its own; the driver makes files that ranks wait for.
class Journal {
 public:
  explicit Journal(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Begins the file of a rank.
  void open(int rank);
  /// Writes a line that says what has happened, and when.
  void write(const std::string& event, nlohmann::json more = nlohmann::json::object());
  /// Whether the driver has made the file `name`.
  [[nodiscard]] bool has(const std::string& name) const;
  /// Waits for the file `name` and returns the number in it.
  [[nodiscard]] std::int64_t wait_for(const std::string& name) const;

 private:
  std::filesystem::path folder_;
  std::ofstream file_;
};

} // namespace perf
