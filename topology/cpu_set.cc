#include "topology/cpu_set.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <charconv>

namespace whorl::topology {
namespace {

constexpr unsigned kWordBits = 64;

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> words;
  for (;;) {
    const std::size_t comma = text.find(',');
    words.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return words;
    text.remove_prefix(comma + 1);
  }
}

} // namespace

std::optional<CpuSet> CpuSet::parse_mask(std::string_view text) {
  if (std::count(text.begin(), text.end(), ',') >= (kMaxCpu + 1) / 32) return {};
  const std::vector<std::string_view> words = split(text);
  CpuSet set;
  set.words_.resize((words.size() + 1) / 2);
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string_view word = words[words.size() - 1 - i];
    if (word.starts_with("0x") || word.starts_with("0X")) word.remove_prefix(2);
    std::uint32_t bits = 0;
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), bits, 16);
    // hwloc leaves out the digits of a word that is 0, but for the lowest word.
    if (word.empty() ? words.size() == 1 || i == 0
                     : error != std::errc() || rest != word.data() + word.size()) {
      return {};
    }
    set.words_[i / 2] |= std::uint64_t{bits} << (i % 2 == 0 ? 0U : 32U);
  }
  set.trim();
  return set;
}

std::string CpuSet::mask() const {
  if (words_.empty()) return "0x0";
  std::string text;
  for (std::size_t i = words_.size() * 2; i-- > 0;) {
    const auto word = static_cast<std::uint32_t>(words_[i / 2] >> (i % 2 == 0 ? 0U : 32U));
    if (text.empty() && word == 0) continue;
    if (!text.empty()) text += ',';
    text += fmt::format("0x{:08x}", word);
  }
  return text;
}

std::string CpuSet::ranges() const {
  std::string text;
  const auto end = static_cast<unsigned>(words_.size()) * kWordBits;
  for (unsigned cpu = 0; cpu < end; ++cpu) {
    if (!contains(cpu)) continue;
    const unsigned first = cpu;
    while (contains(cpu + 1)) ++cpu;
    if (!text.empty()) text += ',';
    text += first == cpu ? fmt::format("{}", first) : fmt::format("{}-{}", first, cpu);
  }
  return text;
}

std::vector<unsigned> CpuSet::numbers() const {
  std::vector<unsigned> found;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    for (std::uint64_t word = words_[i]; word != 0; word &= word - 1) {
      found.push_back(static_cast<unsigned>(i) * kWordBits +
                      static_cast<unsigned>(std::countr_zero(word)));
    }
  }
  return found;
}

void CpuSet::add(unsigned cpu) {
  if (cpu / kWordBits >= words_.size()) words_.resize(cpu / kWordBits + 1);
  words_[cpu / kWordBits] |= std::uint64_t{1} << cpu % kWordBits;
}

bool CpuSet::contains(unsigned cpu) const noexcept {
  return cpu / kWordBits < words_.size() && (words_[cpu / kWordBits] >> cpu % kWordBits & 1) != 0;
}

std::size_t CpuSet::count() const noexcept {
  std::size_t count = 0;
  for (const std::uint64_t word : words_) count += static_cast<std::size_t>(std::popcount(word));
  return count;
}

bool CpuSet::intersects(const CpuSet& other) const noexcept {
  for (std::size_t i = 0; i < std::min(words_.size(), other.words_.size()); ++i) {
    if ((words_[i] & other.words_[i]) != 0) return true;
  }
  return false;
}

bool CpuSet::includes(const CpuSet& other) const noexcept {
  if (other.words_.size() > words_.size()) return false;
  for (std::size_t i = 0; i < other.words_.size(); ++i) {
    if ((other.words_[i] & ~words_[i]) != 0) return false;
  }
  return true;
}

CpuSet& CpuSet::operator|=(const CpuSet& other) {
  words_.resize(std::max(words_.size(), other.words_.size()));
  for (std::size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
  return *this;
}

void CpuSet::trim() {
  while (!words_.empty() && words_.back() == 0) words_.pop_back();
}

} // namespace whorl::topology
