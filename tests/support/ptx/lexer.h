#pragma once

#include <cstdint>
#include <string_view>

namespace whorl::test::ptx {

/// Reader of the tokens of PTX: words (opcodes with their modifiers, registers, numbers, names),
/// and single other characters. Comments and strings of directives are skipped.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) { next(); }
  std::string_view token() const { return token_; } ///< returns the current token; "": the end
  std::uint32_t line() const { return line_; }      ///< returns the line of the token, from 1
  void next();
  /// Goes on if the token is this one.
  bool accept(std::string_view token);
  /// Returns the current token and goes on.
  std::string_view take();
  /// Goes on behind this token, which must be the current one; throws Error otherwise.
  void expect(std::string_view token);

 private:
  void skip_blanks();
  std::string_view text_; ///< rest of the text
  std::string_view token_;
  std::uint32_t line_ = 1;
};

} // namespace whorl::test::ptx
