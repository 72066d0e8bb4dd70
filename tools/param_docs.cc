// Prints docs/parameters.md from the parameter table. `tools/update_docs.sh` writes the file; a lint
// test compares it.
#include <fmt/core.h>

#include "base/params.h"

int main() {
  fmt::print(
      "# Parameters\n"
      "\n"
      "Environment variables that tune whorl. They are read when a communicator is created, and all\n"
      "ranks should see the same values. The variables that launchers set are in\n"
      "[launchers.md](launchers.md). This page is made from the table in `src/base/params.cc`.\n"
      "\n"
      "| variable | default | meaning |\n"
      "|---|---|---|\n");
  for (const whorl::ParamInfo& param : whorl::all_params()) {
    const bool empty = *param.default_value == '\0';
    fmt::print("| `{}` | {} | {} |\n", param.name,
               empty ? "" : fmt::format("`{}`", param.default_value), param.doc);
  }
}
