// Integer arithmetic and comparisons.
#include <algorithm>
#include <string>

#include "tests/support/ptx/instruction_set.h"
#include "tests/support/ptx/operations.h"

namespace whorl::test::ptx {
namespace {

// Results are those modulo 2^n, also of signed types.
struct Add {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
};
struct Subtract {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
  }
};
struct Multiply {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  }
};
// A division by zero has an unspecified result on a device, and so has the smallest number by −1.
struct Divide {
  template <class T>
  static T of(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    return std::is_signed_v<T> && b == static_cast<T>(-1) ? Subtract::of(T{0}, a)
                                                          : static_cast<T>(a / b);
  }
};
struct Remainder {
  template <class T>
  static T of(T a, T b) {
    return b == 0 ? a : Subtract::of(a, Multiply::of(Divide::of(a, b), b));
  }
};
struct Minimum {
  template <class T>
  static T of(T a, T b) {
    return std::min(a, b);
  }
};
struct Maximum {
  template <class T>
  static T of(T a, T b) {
    return std::max(a, b);
  }
};

template <class T>
void negate(Thread& t, const Instruction& i) {
  write<T>(t, i.slots[0], Subtract::of(T{0}, read<T>(t, i.slots[1])));
}

template <class T>
void multiply_add(Thread& t, const Instruction& i) {
  const T product = Multiply::of(read<T>(t, i.slots[1]), read<T>(t, i.slots[2]));
  write<T>(t, i.slots[0], Add::of(product, read<T>(t, i.slots[3])));
}

/// Multiplies to a result of twice the size.
template <class T, class Wide>
void multiply_wide(Thread& t, const Instruction& i) {
  write<Wide>(t, i.slots[0], Multiply::of<Wide>(read<T>(t, i.slots[1]), read<T>(t, i.slots[2])));
}

struct Unequal {
  template <class T>
  static bool of(T a, T b) {
    return a != b;
  }
};
} // namespace

void add_integers(Handlers& handlers) {
  for_integers([&](auto type) {
    using T = typename decltype(type)::Type;
    const std::string name = type.name;
    handlers["add." + name] = binary<T, Add>;
    handlers["sub." + name] = binary<T, Subtract>;
    handlers["mul.lo." + name] = binary<T, Multiply>;
    handlers["div." + name] = binary<T, Divide>;
    handlers["rem." + name] = binary<T, Remainder>;
    handlers["min." + name] = binary<T, Minimum>;
    handlers["max." + name] = binary<T, Maximum>;
    handlers["neg." + name] = negate<T>;
    handlers["mad.lo." + name] = multiply_add<T>;
    handlers["setp.eq." + name] = compare<T, Equal>;
    handlers["setp.ne." + name] = compare<T, Unequal>;
    handlers["setp.lt." + name] = compare<T, Less>;
    handlers["setp.le." + name] = compare<T, LessOrEqual>;
    handlers["setp.gt." + name] = compare<T, Less, true>;
    handlers["setp.ge." + name] = compare<T, LessOrEqual, true>;
  });
  for_bits([&](auto type) {
    using T = typename decltype(type)::Type;
    handlers[std::string("setp.eq.") + type.name] = compare<T, Equal>;
    handlers[std::string("setp.ne.") + type.name] = compare<T, Unequal>;
  });
  handlers["mul.wide.s16"] = multiply_wide<std::int16_t, std::int32_t>;
  handlers["mul.wide.u16"] = multiply_wide<std::uint16_t, std::uint32_t>;
  handlers["mul.wide.s32"] = multiply_wide<std::int32_t, std::int64_t>;
  handlers["mul.wide.u32"] = multiply_wide<std::uint32_t, std::uint64_t>;
}

} // namespace whorl::test::ptx
