#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/status.h"

namespace whorl::topology {

/// Most bytes of a file that describes a machine or a network.
inline constexpr std::size_t kMaxFileBytes = 64U << 20;

/// Returns the number that `text` begins with, whatever the locale; `none`: there is none.
double leading_number(std::string_view text, double none = 0);
/// Returns the whole number that `text` begins with; −1: there is none that is 0 or more.
int leading_count(std::string_view text);

/// Reads a whole file. The error names the file, if it is empty, unreadable or too large: of a file
/// without an end, no more is read than what shows that.
Result<std::string> read_text_file(const std::string& path);

/// Returns the first line of a file of Linux's /sys; empty if there is none, or if Linux refuses to
/// say, as for the speed of an interface that is down.
std::string first_line(const std::filesystem::path& path);

/// Returns the number that such a file begins with; `none`: there is none.
double first_number(const std::filesystem::path& path, double none = 0);

/// Returns an error that names the file if `text` has more bytes than a file may have.
Status check_size(const std::string& name, std::size_t bytes);

} // namespace whorl::topology
