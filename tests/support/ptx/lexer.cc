#include "tests/support/ptx/lexer.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "tests/support/ptx/instruction.h"

namespace whorl::test::ptx {
namespace {

bool is_in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
         c == '.' || c == '-';
}

} // namespace

void Lexer::skip_blanks() {
  while (!text_.empty()) {
    if (text_.substr(0, 2) == "//") {
      text_.remove_prefix(std::min(text_.find('\n'), text_.size()));
    } else if (text_[0] == '"') {
      text_.remove_prefix(std::min(text_.find('"', 1), text_.size() - 1) + 1);
    } else if (std::isspace(static_cast<unsigned char>(text_[0])) != 0) {
      if (text_[0] == '\n') ++line_;
      text_.remove_prefix(1);
    } else {
      return;
    }
  }
}

void Lexer::next() {
  skip_blanks();
  std::size_t end = 0;
  while (end < text_.size() && is_in_word(text_[end])) ++end;
  if (end == 0 && !text_.empty()) end = 1;
  token_ = text_.substr(0, end);
  text_.remove_prefix(end);
}

bool Lexer::accept(std::string_view token) {
  if (token_ != token) return false;
  next();
  return true;
}

std::string_view Lexer::take() {
  const std::string_view token = token_;
  next();
  return token;
}

void Lexer::expect(std::string_view token) {
  if (!accept(token)) {
    throw Error("expected '" + std::string(token) + "', found '" + std::string(token_) + "'");
  }
}

} // namespace whorl::test::ptx
