#pragma once

// Table of the instructions that kernels of this project use; others are errors of the parser.

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tests/support/ptx/instruction.h"

namespace whorl::test::ptx {

/// Handlers by opcode with modifiers, like "add.s32". A `mov` of several elements has ".pack" or
/// ".unpack" in addition.
using Handlers = std::unordered_map<std::string, Handler>;

void add_integers(Handlers& handlers);
void add_bits(Handlers& handlers);
void add_floats(Handlers& handlers);
void add_conversions(Handlers& handlers);
void add_control(Handlers& handlers);

/// Instruction that accesses memory, and its modifiers.
struct MemoryInstruction {
  Handler run;
  Access access;
};
/// Returns nothing for opcodes of other instructions and for modifiers that are not known.
std::optional<MemoryInstruction> find_memory_instruction(std::string_view opcode);

/// Returns the handler of any other opcode; nullptr if it is not known.
Handler find_handler(const std::string& opcode);

/// Integer type of PTX, for tables.
template <class T>
struct Named {
  using Type = T;
  const char* name;
};

/// Calls `f` with a Named for each integer type of 16 to 64 bits.
template <class F>
void for_integers(F&& f) {
  f(Named<std::int16_t>{"s16"});
  f(Named<std::uint16_t>{"u16"});
  f(Named<std::int32_t>{"s32"});
  f(Named<std::uint32_t>{"u32"});
  f(Named<std::int64_t>{"s64"});
  f(Named<std::uint64_t>{"u64"});
}
/// Calls `f` with a Named for each type without sign, under the names of plain bits.
template <class F>
void for_bits(F&& f) {
  f(Named<std::uint16_t>{"b16"});
  f(Named<std::uint32_t>{"b32"});
  f(Named<std::uint64_t>{"b64"});
}

} // namespace whorl::test::ptx
