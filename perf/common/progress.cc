#include "perf/common/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tools/cli/terminal.h"

namespace perf {

Progress::Progress(std::vector<std::size_t> sizes) : sizes_(std::move(sizes)) {}

double Progress::estimate(const std::vector<std::size_t>& sizes, std::size_t done,
                          double last_seconds) {
  if (done == 0) return 0;
  const double last = std::max<double>(static_cast<double>(sizes[done - 1]), 1);
  double seconds = 0;
  for (std::size_t row = done; row < sizes.size(); ++row) {
    // Below some 64 KiB a row's time hardly depends on its size.
    constexpr double kFlat = 1 << 16;
    seconds +=
        last_seconds *
        std::max(std::max(static_cast<double>(sizes[row]), kFlat) / std::max(last, kFlat), 1.0);
  }
  return seconds;
}

void Progress::step() {
  const auto now = Clock::now();
  const auto seconds_since = [&](Clock::time_point start) {
    return std::chrono::duration<double>(now - start).count();
  };
  ++done_;
  const double left = estimate(sizes_, done_, seconds_since(row_began_));
  row_began_ = now;
  const bool terminal = whorl::cli::can_clear(STDERR_FILENO);
  if (terminal && done_ == sizes_.size()) {
    clear();
  } else if (terminal && left >= 1) {
    std::fprintf(stderr, "\r\033[K%zu of %zu rows, about %.0f s left\r", done_, sizes_.size(),
                 left);
  } else if (!terminal && seconds_since(said_) >= 10) {
    std::fprintf(stderr, "# %zu of %zu rows done, about %.0f s left\n", done_, sizes_.size(), left);
    said_ = now;
  }
}

void Progress::clear() const {
  if (whorl::cli::can_clear(STDERR_FILENO)) std::fputs("\r\033[K", stderr);
}

} // namespace perf
