// Parser of one kernel's text.
#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string>

#include "tests/support/ptx/instruction_set.h"
#include "tests/support/ptx/kernel.h"
#include "tests/support/ptx/lexer.h"

namespace whorl::test::ptx {
namespace {

/// Bit of the slots of constants until the number of all constants is known.
constexpr std::uint16_t kConstant = 0x8000;

const std::map<std::string_view, std::uint16_t> kSpecials{
    {"%tid.x", kTid},       {"%tid.y", kTid + 1},       {"%tid.z", kTid + 2},
    {"%ntid.x", kNtid},     {"%ntid.y", kNtid + 1},     {"%ntid.z", kNtid + 2},
    {"%ctaid.x", kCtaid},   {"%ctaid.y", kCtaid + 1},   {"%ctaid.z", kCtaid + 2},
    {"%nctaid.x", kNctaid}, {"%nctaid.y", kNctaid + 1}, {"%nctaid.z", kNctaid + 2},
};

template <class T>
T number(std::string_view text, int base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Error("'" + std::string(text) + "' is no operand");
  }
  return value;
}

/// Returns the bits of a number: 12, -3, 0xff, 0f3F800000 (float32) or 0d… (float64).
std::uint64_t bits_of(std::string_view text) {
  const std::string_view begin = text.substr(0, 2);
  if (begin == "0f" || begin == "0d" || begin == "0x") {
    return number<std::uint64_t>(text.substr(2), 16);
  }
  if (text[0] == '-') return static_cast<std::uint64_t>(number<std::int64_t>(text, 10));
  return number<std::uint64_t>(text, 10);
}

/// Returns the number in a declaration like `%r<12>` or `name[12]`, between `open` and `close`.
std::size_t count_in(Lexer& lexer, std::string_view open, std::string_view close) {
  if (!lexer.accept(open)) return 0;
  const auto count = number<std::size_t>(lexer.take(), 10);
  lexer.expect(close);
  return count;
}

class Parser {
 public:
  Parser(std::string_view text, Kernel& kernel) : lexer_(text), kernel_(kernel) {}

  void parse() {
    try {
      parse_head();
      parse_body();
      resolve_branches();
      place_slots();
    } catch (const Error& error) {
      throw Error(kernel_.name + ", line " + std::to_string(line_) + ": " + error.what());
    }
  }

 private:
  using Scope = std::map<std::string, std::uint16_t, std::less<>>;

  void parse_head() {
    lexer_.expect(".entry");
    lexer_.expect(kernel_.name);
    lexer_.expect("(");
    lexer_.expect(".param");
    lexer_.expect(".align");
    lexer_.next();
    lexer_.expect(".b8");
    parameter_ = lexer_.take();
    kernel_.parameter_bytes = count_in(lexer_, "[", "]");
    lexer_.expect(")");
    while (lexer_.token() != "{") lexer_.next(); // bounds of registers and threads
  }

  void parse_body() {
    std::size_t depth = 0;
    do {
      if (lexer_.accept("{")) {
        ++depth;
        scopes_.emplace_back();
      } else if (lexer_.accept("}")) {
        --depth;
        scopes_.pop_back();
      } else {
        parse_statement();
      }
    } while (depth > 0);
  }

  void parse_statement() {
    const std::string_view token = lexer_.token();
    line_ = lexer_.line();
    if (token.empty()) throw Error("the text ends too early");
    if (token == ".reg") return declare_registers();
    if (token == ".shared") return declare_shared();
    if (token == ".pragma") {
      lexer_.next();
      return lexer_.expect(";"); // the lexer skips the string
    }
    if (token[0] == '.') throw Error("unknown directive '" + std::string(token) + "'");
    if (token[0] == '$') {
      labels_[std::string(lexer_.take())] = static_cast<std::uint32_t>(kernel_.code.size());
      return lexer_.expect(":");
    }
    parse_instruction();
  }

  /// Declares the names of registers that are not of the form %r1, which need no declaration but in
  /// inner braces, where they hide others.
  void declare_registers() {
    lexer_.next();
    const bool is_wide = lexer_.take() == ".b128";
    do {
      const std::string name(lexer_.take());
      if (count_in(lexer_, "<", ">") > 0) continue;
      const std::uint16_t slot = scopes_.back()[name] = new_register();
      if (!is_wide) continue;
      new_register();
      wide_.insert(slot);
    } while (lexer_.accept(","));
    lexer_.expect(";");
  }

  void declare_shared() {
    lexer_.next();
    lexer_.expect(".align");
    const auto alignment = number<std::size_t>(lexer_.take(), 10);
    lexer_.expect(".b8");
    const std::string name(lexer_.take());
    const std::size_t begin = (kernel_.shared_bytes + alignment - 1) / alignment * alignment;
    shared_[name] = begin;
    kernel_.shared_bytes = begin + count_in(lexer_, "[", "]");
    lexer_.expect(";");
  }

  void parse_instruction() {
    Instruction instruction;
    instruction.line = line_;
    if (lexer_.accept("@")) {
      instruction.guard_value = !lexer_.accept("!");
      instruction.guard = register_slot(lexer_.take());
    }
    std::string opcode(lexer_.take());
    std::size_t n = 0;
    std::string suffix;
    for (bool first = true; lexer_.token() != ";"; first = false) {
      if (!first) lexer_.expect(",");
      parse_operand(instruction, n, first, suffix);
    }
    lexer_.expect(";");
    if (const auto access = find_memory_instruction(opcode); access) {
      instruction.run = access->run;
      instruction.access = access->access;
    } else {
      if (opcode.compare(0, 3, "mov") == 0) opcode += suffix;
      instruction.run = find_handler(opcode);
    }
    if (instruction.run == nullptr) throw Error("unknown instruction '" + opcode + "'");
    if (instruction.braces != instruction.access.count && instruction.access.bytes > 0) {
      throw Error("wrong number of elements");
    }
    kernel_.code.push_back(instruction);
  }

  void parse_operand(Instruction& instruction, std::size_t& n, bool first, std::string& suffix) {
    const auto add = [&](std::uint16_t slot) {
      if (n == Instruction::kMaxOperands) throw Error("too many operands");
      instruction.slots[n++] = slot;
    };
    if (lexer_.accept("{")) {
      const std::size_t begin = n;
      do {
        add(operand_slot(lexer_.take()));
      } while (lexer_.accept(","));
      lexer_.expect("}");
      instruction.braces = static_cast<std::uint8_t>(n - begin);
      suffix = first ? ".unpack" : ".pack";
    } else if (lexer_.accept("[")) {
      add(address_slot(lexer_.take(), instruction));
      if (lexer_.accept("+")) {
        instruction.offset += static_cast<std::int64_t>(bits_of(lexer_.take()));
      }
      lexer_.expect("]");
    } else if (lexer_.token() == "%globaltimer") {
      suffix = "." + std::string(lexer_.take());
    } else if (lexer_.token()[0] == '$') {
      branches_.emplace_back(kernel_.code.size(), lexer_.take());
    } else {
      const std::uint16_t slot = operand_slot(lexer_.take());
      add(slot);
      if (wide_.contains(slot)) {
        add(static_cast<std::uint16_t>(slot + 1));
        instruction.braces = 2;
      }
    }
  }

  std::uint16_t address_slot(std::string_view token, Instruction& instruction) {
    const auto shared = shared_.find(token);
    if (shared == shared_.end()) return operand_slot(token);
    instruction.offset = static_cast<std::int64_t>(shared->second);
    return constant_slot(0);
  }

  std::uint16_t operand_slot(std::string_view token) {
    if (token.empty()) throw Error("an operand is missing");
    if (token == parameter_) return kParameters;
    if (const auto special = kSpecials.find(token); special != kSpecials.end()) {
      return special->second;
    }
    if (const auto shared = shared_.find(token); shared != shared_.end()) {
      return constant_slot(shared->second);
    }
    const bool is_number = token[0] == '-' || (token[0] >= '0' && token[0] <= '9');
    return is_number ? constant_slot(bits_of(token)) : register_slot(token);
  }

  std::uint16_t register_slot(std::string_view token) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(token); found != scope->end()) return found->second;
    }
    const bool is_register = token.size() > 1 && token[0] == '%' && token.find('.') == token.npos &&
                             token.back() >= '0' && token.back() <= '9';
    if (!is_register && token != "_") throw Error("unknown name '" + std::string(token) + "'");
    return scopes_.front()[std::string(token)] = new_register();
  }

  std::uint16_t new_register() {
    if (registers_ == kConstant - 1) throw Error("too many registers");
    return registers_++;
  }

  std::uint16_t constant_slot(std::uint64_t value) {
    const auto [place, is_new] =
        constants_.try_emplace(value, static_cast<std::uint16_t>(constants_.size()));
    if (is_new) kernel_.constants.push_back(value);
    return kConstant | place->second;
  }

  void resolve_branches() {
    for (const auto& [instruction, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) throw Error("unknown label '" + std::string(label) + "'");
      kernel_.code[instruction].target = found->second;
    }
  }

  /// Puts registers behind the constants, whose number is known now.
  void place_slots() {
    const auto constants = static_cast<std::uint16_t>(constants_.size());
    const auto place = [&](std::uint16_t& slot) {
      if ((slot & kConstant) != 0) {
        slot = static_cast<std::uint16_t>(kFirstConstant + (slot & ~kConstant));
      } else if (slot >= kFirstConstant) {
        slot = static_cast<std::uint16_t>(slot + constants);
      }
    };
    for (Instruction& instruction : kernel_.code) {
      std::for_each(std::begin(instruction.slots), std::end(instruction.slots), place);
      if (instruction.guard != Instruction::kNoGuard) place(instruction.guard);
    }
    kernel_.slots = std::size_t{registers_} + constants;
  }

  Lexer lexer_;
  Kernel& kernel_;
  std::string_view parameter_;
  std::uint32_t line_ = 1; ///< line in which the present statement begins
  std::vector<Scope> scopes_;
  std::set<std::uint16_t> wide_; ///< registers of 128 bits, which have the next slot, too
  std::map<std::string, std::size_t, std::less<>> shared_;
  std::map<std::string, std::uint32_t, std::less<>> labels_;
  std::vector<std::pair<std::size_t, std::string_view>> branches_;
  std::map<std::uint64_t, std::uint16_t> constants_;
  std::uint16_t registers_ = kFirstConstant;
};

} // namespace

std::string Kernel::line(std::uint32_t number) const {
  std::size_t begin = 0;
  for (std::uint32_t n = 1; n < number && begin != std::string::npos; ++n) {
    begin = text.find('\n', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find('\n', begin) - begin);
}

Kernel read_kernel(std::string_view ptx, std::string_view name) {
  Kernel kernel;
  kernel.name = name;
  const std::size_t begin = ptx.find(".entry " + kernel.name + "(");
  if (begin == std::string_view::npos) throw Error("the PTX has no kernel " + kernel.name);
  kernel.text = ptx.substr(begin, ptx.find(".entry ", begin + 1) - begin);
  Parser(kernel.text, kernel).parse();
  return kernel;
}

} // namespace whorl::test::ptx
