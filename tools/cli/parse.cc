#include <cstdio>

#include "tools/cli/pages.h"

namespace whorl::cli {

std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  if (const auto page = page_for(app, argc, argv)) {
    std::fputs(page->c_str(), stdout);
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

} // namespace whorl::cli
