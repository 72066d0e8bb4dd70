#include "comm/operators.h"

#include <atomic>

#include "whorl/whorl.h"

namespace whorl {
namespace {

/// Numbers of operators are not reused, so that one of another communicator is noticed.
std::atomic<int> next_operator{WHORL_FIRST_USER_OP};

} // namespace

int Operators::add(const Scale& scale) {
  const std::lock_guard lock(mutex_);
  const int op = next_operator.fetch_add(1, std::memory_order_relaxed);
  scales_.emplace_back(op, scale);
  return op;
}

std::optional<Operators::Scale> Operators::find(int op) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, scale] : scales_) {
    if (number == op) return scale;
  }
  return std::nullopt;
}

bool Operators::remove(int op) {
  const std::lock_guard lock(mutex_);
  return std::erase_if(scales_, [op](const auto& entry) { return entry.first == op; }) > 0;
}

} // namespace whorl
