// Prints docs/parameters.md from the parameter table, or writes the page to the file of the first
// argument. `ninja parameter-page` runs this program; a lint test compares the output with the
// page.
#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <string_view>

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
      "Environment variables that change how whorl works; none has to be set. They are read\n"
      "when a communicator is created, except `WHORL_SIMD`, `WHORL_HEAP_BYTES` and `WHORL_LOG`,\n"
      "which a process reads once, at their first use. Set each alike for all ranks unless its\n"
      "row says otherwise or it describes a host (`WHORL_HOST_ADDRESS`, `WHORL_HOST_ID`). A\n"
      "field of `whorlConfig_t` takes precedence. A variable that begins with `WHORL_` and that "
      "does\n"
      "not exist is named in a warning, with the most similar one that does. The variables that\n"
      "say which rank a process is, and where ranks meet, are in [launchers.md](launchers.md).\n"
      "Numbers of bytes may end in K, M or G, for 1024, 1024² and 1024³ bytes.\n"
      "This page is made from the table in `src/base/params.cc`.\n"
      "\n"
      "| variable | default | meaning |\n"
      "|---|---|---|\n");
  for (const whorl::ParamInfo& param : whorl::all_params()) {
    const bool empty = *param.default_value == '\0';
    const std::string old =
        param.old_name == nullptr
            ? std::string()
            : fmt::format(" Where it is not set, `{}`{} is read.", param.old_name,
                          std::string_view(param.old_name).starts_with("NCCL_") ? " of NCCL" : "");
    fmt::print(out, "| `{}` | {} | {}{} |\n", param.name,
               empty ? "" : fmt::format("`{}`", param.default_value), param.doc, old);
  }
  return std::fclose(out) == 0 ? 0 : 1;
}
