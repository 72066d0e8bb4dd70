// Arithmetic and comparisons of floating-point numbers. A result that is not a number is always the
// one that devices give.
#include <cmath>
#include <string>

#include "tests/support/ptx/instruction_set.h"
#include "tests/support/ptx/operations.h"

namespace whorl::test::ptx {
namespace {

template <class T>
T as_device(T value) {
  if (value == value) return value;
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(std::uint32_t{0x7fffffff});
  } else {
    return std::bit_cast<double>(std::uint64_t{0xfff8'0000'0000'0000});
  }
}

struct Add {
  template <class T>
  static T of(T a, T b) {
    return as_device(a + b);
  }
};
struct Subtract {
  template <class T>
  static T of(T a, T b) {
    return as_device(a - b);
  }
};
struct Multiply {
  template <class T>
  static T of(T a, T b) {
    return as_device(a * b);
  }
};
struct Divide {
  template <class T>
  static T of(T a, T b) {
    return as_device(a / b);
  }
};
template <class T>
void absolute(Thread& t, const Instruction& i) {
  write<T>(t, i.slots[0], as_device(std::fabs(read<T>(t, i.slots[1]))));
}
template <class T>
void negate(Thread& t, const Instruction& i) {
  write<T>(t, i.slots[0], as_device(-read<T>(t, i.slots[1])));
}

struct Different {
  template <class T>
  static bool of(T a, T b) {
    return a < b || a > b;
  }
};
struct Ordered {
  template <class T>
  static bool of(T a, T b) {
    return a == a && b == b;
  }
};
/// Relation that also holds if an operand is not a number.
template <class Op>
struct OrUnordered {
  template <class T>
  static bool of(T a, T b) {
    return !Ordered::of(a, b) || Op::of(a, b);
  }
};
struct Unordered {
  template <class T>
  static bool of(T a, T b) {
    return !Ordered::of(a, b);
  }
};

template <class T, class Op, bool kSwapped = false>
void add_relation(Handlers& handlers, const std::string& name, const std::string& type) {
  handlers["setp." + name + "." + type] = compare<T, Op, kSwapped>;
  handlers["setp." + name + "u." + type] = compare<T, OrUnordered<Op>, kSwapped>;
}

template <class T>
void add_type(Handlers& handlers, const std::string& type) {
  handlers["add.rn." + type] = binary<T, Add>;
  handlers["sub.rn." + type] = binary<T, Subtract>;
  handlers["mul.rn." + type] = binary<T, Multiply>;
  handlers["div.rn." + type] = binary<T, Divide>;
  handlers["abs." + type] = absolute<T>;
  handlers["neg." + type] = negate<T>;
  add_relation<T, Equal>(handlers, "eq", type);
  add_relation<T, Different>(handlers, "ne", type);
  add_relation<T, Less>(handlers, "lt", type);
  add_relation<T, LessOrEqual>(handlers, "le", type);
  add_relation<T, Less, true>(handlers, "gt", type);
  add_relation<T, LessOrEqual, true>(handlers, "ge", type);
  handlers["setp.num." + type] = compare<T, Ordered>;
  handlers["setp.nan." + type] = compare<T, Unordered>;
}

} // namespace

void add_floats(Handlers& handlers) {
  add_type<float>(handlers, "f32");
  add_type<double>(handlers, "f64");
}

} // namespace whorl::test::ptx
