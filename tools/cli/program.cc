#include "tools/cli/program.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace whorl::cli {

int run_program(const char* name, int (*body)(int, char**), int argc, char** argv) {
  int status = 0;
  try {
    status = body(argc, argv);
  } catch (const std::system_error& error) { // by fmt::print(), among others
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 2;
  }
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return status;
  std::fprintf(stderr, "%s: cannot write the output%s%s\n", name, flushed ? "" : ": ",
               flushed ? "" : std::strerror(errno)); // errno of an earlier failed flush is lost
  return 2;
}

} // namespace whorl::cli
