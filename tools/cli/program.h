// Frame around the work of a program.
#pragma once

namespace whorl::cli {

/// Runs a program and writes out what it has printed. Returns the status of `body`; or 2, after a
/// sentence on stderr, if the system refuses that output, as a full disk does.
int run_program(const char* name, int (*body)(int, char**), int argc, char** argv);

} // namespace whorl::cli
