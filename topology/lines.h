#pragma once

#include <algorithm>
#include <string_view>

namespace whorl::topology {

inline constexpr std::string_view kBlanks = " \t\r\v\f";

/// Walk over the lines of a text.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  /// Whether there is a further line, which becomes the present one.
  bool next() {
    if (rest_.empty()) return false;
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++number_;
    return true;
  }
  std::string_view line() const noexcept { return line_; }
  int number() const noexcept { return number_; }

 private:
  std::string_view rest_, line_;
  int number_ = 0;
};

/// Returns the text without blanks at its beginning.
inline std::string_view skip_blanks(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kBlanks), text.size()));
}

/// Removes the first word and the blanks before it from `text`, and returns the word; empty: there
/// is none.
inline std::string_view take_word(std::string_view& text) {
  text = skip_blanks(text);
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

} // namespace whorl::topology
