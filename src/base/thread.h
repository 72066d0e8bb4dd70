#pragma once

#include <functional>
#include <thread>

#include "base/status.h"

namespace whorl {

/// Starts a thread that receives no signals. `name` has at most 15 characters. Fails where the
/// system has no thread left.
Result<std::thread> start_thread(const char* name, std::function<void()> body);

/// Returns whether start_thread() made the calling thread.
bool in_own_thread() noexcept;

} // namespace whorl
