#include "tools/cli/values.h"

namespace whorl::cli {

std::string values_of(const CLI::Option& option, std::string_view separator) {
  const std::string type = option.get_type_name(); // "TEXT:{a,b,c}"
  const std::size_t open = type.find('{'), close = type.rfind('}');
  std::string values;
  if (open == std::string::npos || close == std::string::npos) return values;
  for (const char c : type.substr(open + 1, close - open - 1)) {
    if (c == ',') {
      values += separator;
    } else {
      values += c;
    }
  }
  return values;
}

} // namespace whorl::cli
