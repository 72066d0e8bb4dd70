#include "base/log.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <string>

#include "base/params.h"

namespace whorl {
namespace {

LogLevel level_from_environment() {
  const std::string text = param_text(Param::kLog);
  if (text == "off") return LogLevel::kOff;
  if (text == "error") return LogLevel::kError;
  if (text == "info") return LogLevel::kInfo;
  return LogLevel::kWarn;
}

} // namespace

bool log_enabled(LogLevel level) noexcept {
  static const LogLevel enabled = level_from_environment();
  return static_cast<int>(level) <= static_cast<int>(enabled);
}

void log(LogLevel level, std::string_view message) noexcept {
  if (!log_enabled(level)) return;
  constexpr std::array<const char*, 4> kNames{"", "error", "warn", "info"};
  try {
    std::array<char, 65> host{};
    ::gethostname(host.data(), host.size() - 1);
    const std::string line =
        fmt::format("{:%H:%M:%S} {}:{} whorl {}: {}\n", fmt::localtime(std::time(nullptr)),
                    host.data(), ::getpid(), kNames[static_cast<std::size_t>(level)], message);
    // lint: stderr is also there while sys() is replaced
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  } catch (...) { // a message that cannot be formatted must not end the program
  }
}

} // namespace whorl
