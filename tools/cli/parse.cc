#include <cstdio>

#include "tools/cli/pages.h"

namespace whorl::cli {

std::optional<int> parse(App& app, int argc, char** argv) {
  if (const auto page = page_for(app, argc, argv)) {
    std::fputs(page->c_str(), stdout);
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error); // --help, --version
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), app.refusal(error).c_str());
    return 2;
  }
  return std::nullopt;
}

} // namespace whorl::cli
