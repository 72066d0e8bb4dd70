#pragma once

// Instruction of PTX as a thread executes it: a function, and the places of its operands among the
// thread's slots. A slot has 64 bits and is a register, a constant of the text or a special
// register, so that a function need not know which.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "tests/support/ptx/memory.h"

namespace whorl::test::ptx {

struct Block;
struct Instruction;
struct Thread;
using Handler = void (*)(Thread&, const Instruction&);

/// Error of the text, or of a kernel that ran: a fault that a device would report, too.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Space : std::uint8_t { kGeneric, kGlobal, kShared, kParameter };

/// Modifiers of a load, a store or an atomic operation.
struct Access {
  Space space = Space::kGeneric;
  Order order = Order::kWeak;
  Scope scope = Scope::kSystem;
  std::uint8_t bytes = 0; ///< size of an element
  bool is_signed = false;
  std::uint8_t count = 1; ///< number of elements
};

struct Instruction {
  static constexpr std::uint16_t kNoGuard = UINT16_MAX;
  static constexpr std::size_t kMaxOperands = 6;

  Handler run = nullptr;
  std::uint16_t slots[kMaxOperands] =
      {};                         ///< operands from left to right, those in braces one by one
  std::uint16_t guard = kNoGuard; ///< predicate that lets the instruction be executed
  bool guard_value = true;
  std::uint8_t braces = 1; ///< number of elements of the operand in braces
  Access access;
  std::int64_t offset = 0;  ///< bytes from the address in a slot
  std::uint32_t target = 0; ///< instruction to which a branch goes
  std::uint32_t line = 0;
};

/// Places of the special registers among the slots of a thread; constants follow.
enum Special : std::uint16_t {
  kTid = 0, ///< x, y, z, as for the next three
  kNtid = 3,
  kCtaid = 6,
  kNctaid = 9,
  kParameters = 12, ///< address of the kernel's parameter
  kFirstConstant = 13,
};

struct Thread {
  enum class State : std::uint8_t { kRuns, kYields, kAtBarrier, kDone };

  std::uint64_t* slots = nullptr;
  std::uint32_t next = 0; ///< number of the next instruction
  State state = State::kRuns;
  bool vote = false;                 ///< operand of the barrier at which the thread is
  std::uint16_t ballot = UINT16_MAX; ///< slot for the barrier's result; UINT16_MAX: none
  Block* block = nullptr;
  StoreBuffer stores;
  View view;
};

template <class T>
T read(const Thread& thread, std::uint16_t slot) {
  const std::uint64_t bits = thread.slots[slot];
  if constexpr (std::is_same_v<T, bool>) {
    return (bits & 1) != 0;
  } else if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(bits);
  } else {
    return static_cast<T>(bits);
  }
}

/// Writes a slot. Numbers are extended as their type says, since a register may be wider.
template <class T>
void write(Thread& thread, std::uint16_t slot, T value) {
  if constexpr (std::is_same_v<T, float>) {
    thread.slots[slot] = std::bit_cast<std::uint32_t>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    thread.slots[slot] = std::bit_cast<std::uint64_t>(value);
  } else if constexpr (std::is_signed_v<T>) {
    thread.slots[slot] = static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  } else {
    thread.slots[slot] = value;
  }
}

} // namespace whorl::test::ptx
