// Prints docs/parameters.md from the parameter table, or writes it to the file that is named.
// `ninja parameter-page` calls it; a lint test compares its output with the page.
#include <fmt/core.h>

#include <cstdio>

#include "base/params.h"

int main(int argc, char** argv) {
  std::FILE* const out = argc > 1 ? std::fopen(argv[1], "w") : stdout;
  if (out == nullptr) {
    std::perror(argv[1]);
    return 1;
  }
  fmt::print(
      out,
      "# Parameters\n"
      "\n"
      "Environment variables that tune whorl. They are read when a communicator is created, and "
      "all\n"
      "ranks should see the same values. The variables that launchers set are in\n"
      "[launchers.md](launchers.md). This page is made from the table in `src/base/params.cc`.\n"
      "\n"
      "| variable | default | meaning |\n"
      "|---|---|---|\n");
  for (const whorl::ParamInfo& param : whorl::all_params()) {
    const bool empty = *param.default_value == '\0';
    fmt::print(out, "| `{}` | {} | {} |\n", param.name,
               empty ? "" : fmt::format("`{}`", param.default_value), param.doc);
  }
  return std::fclose(out) == 0 ? 0 : 1;
}
