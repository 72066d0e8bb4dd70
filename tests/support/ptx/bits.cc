// Logic, shifts, and moves of bits between registers.
#include <algorithm>
#include <string>

#include "tests/support/ptx/instruction_set.h"
#include "tests/support/ptx/operations.h"

namespace whorl::test::ptx {
namespace {

struct And {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

template <class T>
void invert(Thread& t, const Instruction& i) {
  write<T>(t, i.slots[0], static_cast<T>(~read<T>(t, i.slots[1])));
}
void invert_predicate(Thread& t, const Instruction& i) {
  write(t, i.slots[0], !read<bool>(t, i.slots[1]));
}

constexpr unsigned kMaxShift = 63;

template <class T>
void shift_left(Thread& t, const Instruction& i) {
  const auto distance = read<std::uint32_t>(t, i.slots[2]);
  const std::uint64_t value = read<T>(t, i.slots[1]);
  write<T>(t, i.slots[0],
           distance >= 8 * sizeof(T) ? T{0} : static_cast<T>(value << (distance & kMaxShift)));
}

/// Shifts to the right, with the sign if T has one.
template <class T>
void shift_right(Thread& t, const Instruction& i) {
  const auto distance = std::min<std::uint32_t>(read<std::uint32_t>(t, i.slots[2]), 8 * sizeof(T));
  const T value = read<T>(t, i.slots[1]);
  const T most = static_cast<T>(value >> (distance == 0 ? 0 : (distance - 1) & kMaxShift));
  write<T>(t, i.slots[0], distance == 0 ? value : static_cast<T>(most >> 1));
}

void move(Thread& t, const Instruction& i) { t.slots[i.slots[0]] = t.slots[i.slots[1]]; }

/// Moves a pair of slots: a register of 128 bits, or two in braces.
void move_pair(Thread& t, const Instruction& i) {
  t.slots[i.slots[0]] = t.slots[i.slots[2]];
  t.slots[i.slots[1]] = t.slots[i.slots[3]];
}

void select(Thread& t, const Instruction& i) {
  t.slots[i.slots[0]] = t.slots[i.slots[read<bool>(t, i.slots[3]) ? 1 : 2]];
}

/// Puts the elements of the braces into one register, the first into its lowest bits.
template <class T>
void pack(Thread& t, const Instruction& i) {
  const unsigned width = 8 * sizeof(T) / i.braces;
  std::uint64_t all = 0;
  for (unsigned e = 0; e < i.braces; ++e) {
    const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
    all |= (t.slots[i.slots[1 + e]] & mask) << (e * width);
  }
  write<T>(t, i.slots[0], static_cast<T>(all));
}

template <class T>
void unpack(Thread& t, const Instruction& i) {
  const unsigned width = 8 * sizeof(T) / i.braces;
  const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
  const std::uint64_t all = read<T>(t, i.slots[i.braces]);
  for (unsigned e = 0; e < i.braces; ++e) t.slots[i.slots[e]] = all >> (e * width) & mask;
}

/// Inserts the low bits of the first operand into the second: position and length follow.
template <class T>
void insert_bits(Thread& t, const Instruction& i) {
  constexpr unsigned kBits = 8 * sizeof(T);
  const unsigned position = read<std::uint32_t>(t, i.slots[3]) & 0xff;
  const unsigned length = read<std::uint32_t>(t, i.slots[4]) & 0xff;
  T result = read<T>(t, i.slots[2]);
  if (position < kBits && length > 0) {
    const T low = length >= kBits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
    const T mask = static_cast<T>(low << position);
    const T value = static_cast<T>(read<T>(t, i.slots[1]) << position);
    result = static_cast<T>((result & ~mask) | (value & mask));
  }
  write<T>(t, i.slots[0], result);
}

/// Chooses four bytes of the eight of two registers, by the four lowest digits of a third one.
void permute(Thread& t, const Instruction& i) {
  const std::uint64_t both = read<std::uint32_t>(t, i.slots[1]) |
                             static_cast<std::uint64_t>(read<std::uint32_t>(t, i.slots[2])) << 32;
  const auto choice = read<std::uint32_t>(t, i.slots[3]);
  std::uint32_t result = 0;
  for (unsigned byte = 0; byte < 4; ++byte) {
    const unsigned digit = choice >> (4 * byte) & 0xf;
    std::uint32_t value = static_cast<std::uint32_t>(both >> (8 * (digit & 7))) & 0xff;
    if ((digit & 8) != 0) value = (value & 0x80) != 0 ? 0xff : 0; // the sign alone
    result |= value << (8 * byte);
  }
  write(t, i.slots[0], result);
}

} // namespace

void add_bits(Handlers& handlers) {
  for_bits([&](auto type) {
    using T = typename decltype(type)::Type;
    const std::string name = type.name;
    handlers["and." + name] = binary<T, And>;
    handlers["or." + name] = binary<T, Or>;
    handlers["xor." + name] = binary<T, Xor>;
    handlers["not." + name] = invert<T>;
    handlers["shl." + name] = shift_left<T>;
    handlers["shr." + name] = shift_right<T>;
    handlers["mov." + name] = move;
    handlers["selp." + name] = select;
    handlers["mov." + name + ".pack"] = pack<T>;
    handlers["mov." + name + ".unpack"] = unpack<T>;
  });
  handlers["mov.b128.pack"] = handlers["mov.b128.unpack"] = move_pair;
  for_integers([&](auto type) {
    using T = typename decltype(type)::Type;
    const std::string name = type.name;
    handlers["shr." + name] = shift_right<T>;
    handlers["mov." + name] = move;
    handlers["selp." + name] = select;
  });
  for (const char* const type : {"f32", "f64"}) {
    handlers[std::string("mov.") + type] = move;
    handlers[std::string("selp.") + type] = select;
  }
  handlers["and.pred"] = binary<bool, And>;
  handlers["or.pred"] = binary<bool, Or>;
  handlers["xor.pred"] = binary<bool, Xor>;
  handlers["not.pred"] = invert_predicate;
  handlers["mov.pred"] = move;
  handlers["bfi.b32"] = insert_bits<std::uint32_t>;
  handlers["bfi.b64"] = insert_bits<std::uint64_t>;
  handlers["prmt.b32"] = permute;
  // Addresses of all spaces are those of generic accesses.
  handlers["cvta.to.global.u64"] = move;
  handlers["cvta.param.u64"] = move;
}

} // namespace whorl::test::ptx
