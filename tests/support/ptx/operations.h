#pragma once

// Shapes that handlers of several kinds of numbers have in common. An Op has a static function of()
// for two operands.

#include "tests/support/ptx/instruction.h"

namespace whorl::test::ptx {

template <class T, class Op>
void binary(Thread& t, const Instruction& i) {
  write<T>(t, i.slots[0], Op::of(read<T>(t, i.slots[1]), read<T>(t, i.slots[2])));
}

/// Writes a predicate; kSwapped: the relation of the second operand to the first.
template <class T, class Op, bool kSwapped = false>
void compare(Thread& t, const Instruction& i) {
  const T a = read<T>(t, i.slots[1]), b = read<T>(t, i.slots[2]);
  write<bool>(t, i.slots[0], kSwapped ? Op::of(b, a) : Op::of(a, b));
}

struct Equal {
  template <class T>
  static bool of(T a, T b) {
    return a == b;
  }
};
struct Less {
  template <class T>
  static bool of(T a, T b) {
    return a < b;
  }
};
struct LessOrEqual {
  template <class T>
  static bool of(T a, T b) {
    return a <= b;
  }
};

} // namespace whorl::test::ptx
