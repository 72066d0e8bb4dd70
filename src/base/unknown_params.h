#pragma once

#include <string>
#include <vector>

namespace whorl {

/// Returns a sentence for each variable of `environment` ("NAME=value") that begins with "WHORL_"
/// and that whorl does not know, with the most similar name that it knows, if one is similar.
std::vector<std::string> describe_unknown_params(const char* const* environment);

/// Logs describe_unknown_params() of this process's environment, once in a process. Any thread.
void warn_of_unknown_params();

} // namespace whorl
