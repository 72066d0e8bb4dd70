#pragma once

#include <atomic>

namespace whorl {

/// Function of whorlSetInterruptCheck(); null: none. Set by any thread, relaxed: it guards no data.
inline std::atomic<int (*)()> interrupt_check{nullptr};

} // namespace whorl
