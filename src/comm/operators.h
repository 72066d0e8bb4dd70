#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/types.h"

namespace whorl {

/// Premultiplied sums of one communicator, by the value of their whorlRedOp_t. Any thread.
class Operators {
 public:
  struct Scale {
    DataType type;
    const void* source; ///< read when an operation runs; null: `value`
    std::array<std::byte, 8> value;
  };
  /// Adds an operator and returns its number, which no other operator of this process ever has.
  int add(const Scale& scale);
  std::optional<Scale> find(int op) const;
  /// Removes an operator; false if there is none.
  bool remove(int op);

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<int, Scale>> scales_;
};

} // namespace whorl
