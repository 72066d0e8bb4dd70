#include "tests/support/device_image/machine_code.h"

#include <elf.h>

#include <algorithm>
#include <bitset>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace whorl::test {
namespace {

/// Instruction of 16 bytes.
struct Word {
  std::uint64_t low, high;

  enum Opcode : unsigned { kLoad = 0x981, kStore = 0x986, kFence = 0x992 };
  static constexpr unsigned kNoRegister = 255;

  unsigned opcode() const { return low & 0xfff; }
  bool is_wide() const { return (high >> 9 & 7) == 6; } // a load or store
  unsigned target() const { return low >> 16 & 0xff; }
  /// Returns the registers that the instruction may read, one bit for each.
  std::bitset<256> sources() const {
    std::bitset<256> all;
    all.set(low >> 24 & 0xff).set(high & 0xff);
    const bool second = (opcode() >> 9) == 1 || opcode() == kStore; // otherwise a constant
    if (second) all.set(low >> 32 & 0xff);
    return all.reset(kNoRegister);
  }
};

void read_instructions(std::string_view code, KernelFacts& facts) {
  std::bitset<256> loaded;
  int in_flight = 0;
  for (std::size_t at = 0; at + sizeof(Word) <= code.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, code.data() + at, sizeof word);
    if ((loaded & word.sources()).any()) {
      loaded.reset();
      in_flight = 0;
    }
    if (word.opcode() == Word::kFence) ++facts.fences;
    if (word.opcode() == Word::kStore && word.is_wide()) ++facts.wide_stores;
    if (word.opcode() == Word::kLoad && word.is_wide()) {
      ++facts.wide_loads;
      facts.loads_in_flight = std::max(facts.loads_in_flight, ++in_flight);
      for (unsigned r = 0; r < 4; ++r) loaded.set((word.target() + r) & 0xff);
    }
  }
}

/// Attribute of a section .nv.info or .nv.info.KERNEL.
struct Attribute {
  enum Format : std::uint8_t { kShort = 3, kSized = 4 };
  enum Name : std::uint8_t { kFrameSize = 0x11, kParameterSize = 0x19 };
  Format format;
  Name name;
  std::uint16_t value; ///< value, or size of the data
  std::string_view data = {};
};

std::vector<Attribute> attributes_of(std::string_view info) {
  constexpr std::size_t kHead = 4;
  std::vector<Attribute> all;
  while (info.size() >= kHead) {
    Attribute one{static_cast<Attribute::Format>(info[0]), static_cast<Attribute::Name>(info[1]),
                  static_cast<std::uint16_t>(static_cast<unsigned char>(info[2]) |
                                             static_cast<unsigned char>(info[3]) << 8)};
    info.remove_prefix(kHead);
    if (one.format == Attribute::kSized) {
      one.data = info.substr(0, one.value);
      info.remove_prefix(one.data.size());
    }
    all.push_back(one);
  }
  return all;
}

/// ELF file, with bounds checked.
class Elf {
 public:
  explicit Elf(std::string_view file) : file_(file), head_(at<Elf64_Ehdr>(0)) {
    if (file.substr(0, SELFMAG) != ELFMAG) throw std::runtime_error("not an ELF file");
  }
  template <class T>
  T at(std::size_t offset) const {
    T value;
    if (offset > file_.size() || sizeof value > file_.size() - offset) {
      throw std::runtime_error("an ELF file ends too early");
    }
    std::memcpy(&value, file_.data() + offset, sizeof value);
    return value;
  }
  std::size_t sections() const { return head_.e_shnum; }
  Elf64_Shdr section(std::size_t i) const {
    return at<Elf64_Shdr>(head_.e_shoff + i * sizeof(Elf64_Shdr));
  }
  std::string_view name(const Elf64_Shdr& section) const {
    return text(this->section(head_.e_shstrndx), section.sh_name);
  }
  std::string_view bytes(const Elf64_Shdr& section) const {
    return section.sh_type == SHT_NOBITS ? std::string_view()
                                         : file_.substr(section.sh_offset, section.sh_size);
  }
  /// Returns the name of symbol `i` of the table that `section` names.
  std::string_view symbol(const Elf64_Shdr& section, std::uint32_t i) const {
    const Elf64_Shdr table = this->section(section.sh_link);
    const auto symbol = at<Elf64_Sym>(table.sh_offset + i * sizeof(Elf64_Sym));
    return text(this->section(table.sh_link), symbol.st_name);
  }

 private:
  std::string_view text(const Elf64_Shdr& strings, std::size_t offset) const {
    const std::string_view all = bytes(strings);
    return all.substr(offset, all.find('\0', offset) - offset);
  }
  std::string_view file_;
  Elf64_Ehdr head_;
};

/// Returns what follows `prefix` in `text`, or nothing.
std::string behind(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix ? std::string(text.substr(prefix.size())) : "";
}

} // namespace

std::map<std::string, KernelFacts> read_machine_code(const std::string& file) {
  const Elf elf(file);
  std::map<std::string, KernelFacts> kernels;
  std::map<std::string, std::size_t> frames;
  for (std::size_t i = 1; i < elf.sections(); ++i) {
    const Elf64_Shdr section = elf.section(i);
    const std::string_view name = elf.name(section);
    if (const std::string kernel = behind(name, ".text."); !kernel.empty()) {
      read_instructions(elf.bytes(section), kernels[kernel]);
    }
    const std::string kernel = behind(name, ".nv.info.");
    if (kernel.empty() && name != ".nv.info") continue;
    for (const Attribute& attribute : attributes_of(elf.bytes(section))) {
      if (attribute.name == Attribute::kParameterSize && !kernel.empty()) {
        kernels[kernel].parameter_bytes = attribute.value;
      }
      std::uint32_t frame[2]; // number of the function's symbol, and size
      if (attribute.name == Attribute::kFrameSize && attribute.data.size() == sizeof frame) {
        std::memcpy(frame, attribute.data.data(), sizeof frame);
        frames[std::string(elf.symbol(section, frame[0]))] = frame[1];
      }
    }
  }
  // Functions that kernels call count as part of every kernel.
  for (auto& [name, facts] : kernels) {
    for (const auto& [function, bytes] : frames) {
      if (function == name || kernels.count(function) == 0) facts.stack_bytes += bytes;
    }
  }
  return kernels;
}

} // namespace whorl::test
