// Loads, stores and atomic additions.
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/support/ptx/instruction_set.h"
#include "tests/support/ptx/launch.h"

namespace whorl::test::ptx {
namespace {

constexpr std::size_t kMaxBytes = Granule::kBytes; ///< size of the widest access

/// Returns where the host finds what the instruction accesses. Sets `is_plain` if it is memory that
/// only this block sees, or that nobody changes.
std::byte* find(Thread& t, const Instruction& i, std::uint16_t slot, bool* is_plain) {
  const std::uint64_t address = t.slots[slot] + static_cast<std::uint64_t>(i.offset);
  const std::size_t bytes = std::size_t{i.access.bytes} * i.access.count;
  Block& block = *t.block;
  if (address % bytes != 0) throw Error("misaligned address");
  const std::uint64_t in_parameter = address - reinterpret_cast<std::uintptr_t>(block.parameter);
  const bool is_parameter = in_parameter < block.kernel->parameter_bytes &&
                            bytes <= block.kernel->parameter_bytes - in_parameter;
  *is_plain = true;
  std::byte* found = nullptr;
  switch (i.access.space) {
    case Space::kShared:
      if (address < block.kernel->shared_bytes && bytes <= block.kernel->shared_bytes - address) {
        found = reinterpret_cast<std::byte*>(block.shared.data()) + address;
      }
      break;
    case Space::kParameter:
    case Space::kGeneric:
      if (is_parameter) found = const_cast<std::byte*>(block.parameter) + in_parameter;
      if (is_parameter || i.access.space == Space::kParameter) break;
      [[fallthrough]];
    case Space::kGlobal:
      found = block.space->reach(address, bytes);
      *is_plain = false;
      break;
  }
  if (found == nullptr) throw Error("illegal address");
  return found;
}

/// Lets other threads run before this one goes on, for accesses on which threads wait.
void yield_unless_weak(Thread& t, const Access& access) {
  if (access.order != Order::kWeak && t.state == Thread::State::kRuns) {
    t.state = Thread::State::kYields;
  }
}

void load(Thread& t, const Instruction& i) {
  bool is_plain = false;
  const std::byte* const from = find(t, i, i.slots[i.access.count], &is_plain);
  std::byte data[kMaxBytes];
  const std::size_t bytes = std::size_t{i.access.bytes} * i.access.count;
  if (is_plain) {
    std::memcpy(data, from, bytes);
  } else {
    Observer observer = t.block->observer(t);
    t.block->memory->load(observer, from, data, bytes, i.access.order);
    if (i.access.order == Order::kAcquire) t.block->memory->observe(observer, i.access.scope);
    yield_unless_weak(t, i.access);
  }
  for (unsigned e = 0; e < i.access.count; ++e) {
    std::uint64_t value = 0;
    std::memcpy(&value, data + std::size_t{e} * i.access.bytes, i.access.bytes);
    if (i.access.is_signed) {
      const unsigned unused = 64 - 8U * i.access.bytes;
      value = static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused);
    }
    t.slots[i.slots[e]] = value;
  }
}

void store(Thread& t, const Instruction& i) {
  bool is_plain = false;
  std::byte* const to = find(t, i, i.slots[0], &is_plain);
  std::byte data[kMaxBytes];
  for (unsigned e = 0; e < i.access.count; ++e) {
    std::memcpy(data + std::size_t{e} * i.access.bytes, &t.slots[i.slots[1 + e]], i.access.bytes);
  }
  const std::size_t bytes = std::size_t{i.access.bytes} * i.access.count;
  if (is_plain) {
    if (i.access.space != Space::kShared) throw Error("a store to the parameter");
    std::memcpy(to, data, bytes);
    return;
  }
  Observer observer = t.block->observer(t);
  if (i.access.order == Order::kRelease) t.block->memory->publish(observer, i.access.scope);
  t.block->memory->store(observer, to, data, bytes);
  yield_unless_weak(t, i.access);
}

void add_atomically(Thread& t, const Instruction& i) {
  bool is_plain = false;
  std::byte* const to = find(t, i, i.slots[1], &is_plain);
  if (is_plain) throw Error("an atomic operation on memory that is not global");
  Observer observer = t.block->observer(t);
  const std::uint64_t old = t.block->memory->add(observer, to, t.slots[i.slots[2]], i.access.bytes);
  t.slots[i.slots[0]] = old;
  yield_unless_weak(t, i.access);
}

std::vector<std::string> parts_of(std::string_view opcode) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= opcode.size();) {
    const std::size_t end = std::min(opcode.find('.', at), opcode.size());
    parts.emplace_back(opcode.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

/// Understands one modifier; returns false if it is not known.
bool apply_modifier(const std::string& part, Access& access) {
  static const std::map<std::string, Order> orders{{"weak", Order::kWeak},
                                                   {"relaxed", Order::kRelaxed},
                                                   {"acquire", Order::kAcquire},
                                                   {"release", Order::kRelease},
                                                   {"volatile", Order::kRelaxed}};
  static const std::map<std::string, Scope> scopes{
      {"cta", Scope::kBlock}, {"gpu", Scope::kDevice}, {"sys", Scope::kSystem}};
  static const std::map<std::string, Space> spaces{
      {"global", Space::kGlobal}, {"shared", Space::kShared}, {"param", Space::kParameter}};
  static const std::map<std::string, std::uint8_t> types{
      {"u8", 1},  {"s8", 1},  {"b8", 1},  {"u16", 2}, {"s16", 2}, {"b16", 2}, {"u32", 4},
      {"s32", 4}, {"b32", 4}, {"f32", 4}, {"u64", 8}, {"s64", 8}, {"b64", 8}, {"f64", 8}};
  if (const auto order = orders.find(part); order != orders.end()) {
    access.order = order->second;
  } else if (const auto scope = scopes.find(part); scope != scopes.end()) {
    access.scope = scope->second;
  } else if (const auto space = spaces.find(part); space != spaces.end()) {
    access.space = space->second;
  } else if (part == "b128") { // a pair of slots
    access.bytes = 8;
    access.count = 2;
  } else if (part == "v2" || part == "v4") {
    access.count = part == "v2" ? 2 : 4;
  } else if (const auto type = types.find(part); type != types.end()) {
    access.bytes = type->second;
    access.is_signed = part[0] == 's';
  } else {
    return false;
  }
  return true;
}

} // namespace

std::optional<MemoryInstruction> find_memory_instruction(std::string_view opcode) {
  const std::vector<std::string> parts = parts_of(opcode);
  MemoryInstruction found{};
  if (parts[0] == "atom") found.access.order = Order::kRelaxed;
  bool adds = false;
  for (std::size_t p = 1; p < parts.size(); ++p) {
    if (parts[p] == "add") {
      adds = true;
    } else if (!apply_modifier(parts[p], found.access)) {
      return {};
    }
  }
  const bool fits = found.access.bytes * found.access.count <= kMaxBytes;
  if (found.access.bytes == 0 || !fits || adds != (parts[0] == "atom")) return {};
  if (parts[0] == "ld" && found.access.order != Order::kRelease) {
    found.run = load;
  } else if (parts[0] == "st" && found.access.order != Order::kAcquire) {
    found.run = store;
  } else if (adds && found.access.order == Order::kRelaxed && !found.access.is_signed) {
    found.run = add_atomically;
  } else {
    return {};
  }
  return found;
}

} // namespace whorl::test::ptx
