#pragma once

#include <string_view>

namespace whorl {

enum class LogLevel : int { kOff = 0, kError = 1, kWarn = 2, kInfo = 3 };

/// Returns whether a message of `level` would be printed (`WHORL_LOG`).
bool log_enabled(LogLevel level) noexcept;
/// Prints one line on stderr: time, host, pid, level, message. Any thread; one write per line.
void log(LogLevel level, std::string_view message) noexcept;

} // namespace whorl
