#pragma once

namespace perf {

/// Piece of work for one core that takes a given time where nothing interrupts it. The work is
/// fixed, not the time: what interrupts it makes it longer.
class Computing {
 public:
  /// Finds out how much work fits `us` microseconds; 0: none.
  explicit Computing(double us);
  void run() const;

 private:
  long rounds_ = 0;
};

} // namespace perf
