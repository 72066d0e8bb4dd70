#include "topology/hostlist.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

namespace whorl::topology {
namespace {

constexpr std::size_t kMaxNameBytes = 128;
constexpr std::size_t kMaxDigits = 9; ///< most digits of a number in brackets

Status wrong(std::string why) {
  return Status::error(Code::kInvalidArgument, "a list of names " + std::move(why));
}

Status too_many() { return wrong("has more names than a file may have"); }

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::uint64_t value_of(std::string_view digits) {
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

/// Numbers of a range "07-16", or of a single number; `width` counts digits with leading zeros.
struct Range {
  std::uint64_t first = 0, last = 0;
  std::size_t width = 0;
};

Result<Range> parse_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  const std::string_view first = text.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : text.substr(dash + 1);
  for (const std::string_view number : {first, last}) {
    if (number.empty() || number.size() > kMaxDigits ||
        !std::all_of(number.begin(), number.end(), is_digit)) {
      return wrong(fmt::format("has [{}], which is no range of numbers of up to {} digits",
                               text.substr(0, 40), kMaxDigits));
    }
  }
  const Range range{value_of(first), value_of(last), first.size()};
  if (range.last < range.first) {
    return wrong(fmt::format("has [{}], a range that ends before its beginning", text));
  }
  return range;
}

/// Part of an item of a list: text, and the numbers between the brackets behind it.
struct Part {
  std::string_view text;
  std::vector<std::string> numbers;
};

/// Returns the numbers of "1-3,07", at most `most`.
Result<std::vector<std::string>> expand_ranges(std::string_view ranges, std::size_t most) {
  std::vector<std::string> numbers;
  for (std::size_t begin = 0; begin <= ranges.size();) {
    const std::size_t end = std::min(ranges.find(',', begin), ranges.size());
    const auto range = parse_range(ranges.substr(begin, end - begin));
    if (!range.ok()) return range.status();
    if (range->last - range->first >= most - numbers.size()) return too_many();
    for (std::uint64_t i = range->first; i <= range->last; ++i) {
      numbers.push_back(fmt::format("{:0{}}", i, range->width));
    }
    begin = end + 1;
  }
  return numbers;
}

/// Appends the names of one item of a list, which has no comma outside of brackets.
Status expand_item(std::string_view item, std::size_t most, std::vector<std::string>& names) {
  std::vector<Part> parts;
  std::size_t count = 1;
  if (names.size() >= most) return too_many();
  while (!item.empty()) {
    const std::size_t open = std::min(item.find('['), item.size());
    Part part{.text = item.substr(0, open), .numbers = {}};
    item.remove_prefix(open);
    if (!item.empty()) {
      const std::size_t close = item.find(']');
      if (close == std::string_view::npos) {
        return wrong(fmt::format("has \"{}\", whose bracket is not closed", item.substr(0, 40)));
      }
      auto numbers = expand_ranges(item.substr(1, close - 1), most);
      if (!numbers.ok()) return numbers.status();
      item.remove_prefix(close + 1);
      part.numbers = *std::move(numbers);
      count *= part.numbers.size();
      if (count > most - names.size()) return too_many();
    }
    parts.push_back(std::move(part));
    if (parts.size() > kMaxNameBytes) return wrong("has a name of too many brackets");
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::string name;
    std::size_t repeats = count; // of a number, until the next one comes
    for (const Part& part : parts) {
      name += part.text;
      if (part.numbers.empty()) continue;
      repeats /= part.numbers.size();
      name += part.numbers[i / repeats % part.numbers.size()];
    }
    WHORL_TRY(check_name(name));
    names.push_back(std::move(name));
  }
  return {};
}

/// Name, cut around its last number.
struct Cut {
  std::string_view before, digits, after;

  explicit Cut(std::string_view name) : before(name) {
    constexpr std::size_t kMost = 18; // what an integer holds
    std::size_t end = name.size();
    while (end > 0 && !is_digit(name[end - 1])) --end;
    std::size_t begin = end;
    while (begin > 0 && is_digit(name[begin - 1])) --begin;
    if (end == begin || end - begin > kMost) return;
    before = name.substr(0, begin);
    digits = name.substr(begin, end - begin);
    after = name.substr(end);
  }
  /// Whether the names differ in a number only.
  bool same_but_number(const Cut& other) const {
    return !digits.empty() && !other.digits.empty() && before == other.before &&
           after == other.after;
  }
};

} // namespace

Result<std::vector<std::string>> expand_hostlist(std::string_view list, std::size_t most) {
  std::vector<std::string> names;
  bool inside = false;
  for (std::size_t begin = 0, end = 0; begin < list.size(); begin = end + 1) {
    for (end = begin; end < list.size(); ++end) {
      if (list[end] == '[') inside = true;
      if (list[end] == ']') inside = false;
      if (!inside && (list[end] == ',' || is_blank(list[end]))) break;
    }
    if (end == begin) continue;
    WHORL_TRY(expand_item(list.substr(begin, end - begin), most, names));
  }
  return names;
}

std::string to_hostlist(std::vector<std::string> names) {
  std::sort(names.begin(), names.end(), natural_less);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::string text;
  for (std::size_t i = 0; i < names.size();) {
    const Cut first(names[i]);
    std::string ranges;
    std::size_t end = i;
    while (end < names.size() && (end == i || Cut(names[end]).same_but_number(first))) {
      const Cut low(names[end]);
      std::string_view high = low.digits;
      std::size_t next = end + 1;
      for (std::uint64_t value = value_of(low.digits) + 1; next < names.size(); ++next, ++value) {
        const Cut cut(names[next]);
        if (!cut.same_but_number(first)) break;
        if (cut.digits != fmt::format("{:0{}}", value, low.digits.size())) break;
        high = cut.digits;
      }
      ranges += fmt::format("{}{}", ranges.empty() ? "" : ",", low.digits);
      if (next > end + 1) ranges += fmt::format("-{}", high);
      end = next;
    }
    if (!text.empty()) text += ',';
    text += end == i + 1 ? names[i] : fmt::format("{}[{}]{}", first.before, ranges, first.after);
    i = end;
  }
  return text;
}

Status check_name(std::string_view name) {
  if (name.size() > kMaxNameBytes) {
    return Status::error(Code::kInvalidArgument,
                         fmt::format("the name \"{}…\" has more than {} characters",
                                     name.substr(0, 40), kMaxNameBytes));
  }
  const auto wrong_character = [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || c == '\x7f' ||
           std::string_view("[]{}\",").find(c) != std::string_view::npos;
  };
  if (!name.empty() && std::none_of(name.begin(), name.end(), wrong_character)) return {};
  return Status::error(Code::kInvalidArgument,
                       fmt::format("\"{}\" is no name of a host or switch", name.substr(0, 40)));
}

bool natural_less(std::string_view a, std::string_view b) {
  std::size_t i = 0, j = 0;
  const auto number_at = [](std::string_view text, std::size_t& at) {
    while (at + 1 < text.size() && text[at] == '0' && is_digit(text[at + 1])) ++at;
    const std::size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return text.substr(begin, at - begin);
  };
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string_view x = number_at(a, i), y = number_at(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i, ++j;
    }
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b; // differ in leading zeros at most
}

} // namespace whorl::topology
