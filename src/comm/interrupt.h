#pragma once

#include <atomic>

namespace whorl {

/// That of whorlSetInterruptCheck(); null: none. Set by any thread, relaxed: it guards no data.
inline std::atomic<int (*)()> interrupt_check{nullptr};

} // namespace whorl
